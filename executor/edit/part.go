package edit

import (
	"fmt"
	"slices"
	"strings"
)

// maxPart bounds the text of [Editor.ReadPart] in bytes, as Anthropic's toolset bounds the file.
const maxPart = 256 << 10

// ReadPart is the tool "read" of Strands' harness and of Anthropic's toolset: the lines first to last of a text, counted
// from 1, where a last line below 1 is the end. Documents are shown as Markdown, images as [Editor.Read] has them, and
// sound and video are refused. Strands numbers the lines and says which part they are; its paths are absolute, others
// are taken from dir. ReadPart returns an *Error on failure.
func (e *Editor) ReadPart(d Dialect, path, dir string, first, last int) (Result, error) {
	if d == Strands && !strings.HasPrefix(path, "/") {
		return Result{Path: path}, e.relativePath(d, path)
	}
	if c := (Command{Name: "view", Path: absolutePath(dir, path), offsets: d == Strands}); c.converts() {
		if first > 1 || last > 0 {
			c.ViewRange = []int{first, last}
			if last < 1 {
				c.ViewRange[1] = -1
			}
		}
		return e.Do(c)
	}
	r, err := e.Read(path, dir, 0, -1)
	switch media := mediaType(r.Path); {
	case err != nil, strings.HasPrefix(media, "image/"):
		return r, err
	case media != "":
		return Result{Path: r.Path}, refuse(CodeUnsupported, "The file %s is neither text nor an image but %s, by its name. "+
			"Use a command such as ffprobe or file to learn about it.", r.Path, media)
	}
	if d == Strands { // it counts lines as wc and grep -n do
		r.Text = strings.TrimSuffix(r.Text, "\n")
	}
	lines := strings.Split(r.Text, "\n")
	count := len(lines)
	if last < 1 {
		last = count
	}
	switch first, last = max(first, 1), min(last, count); {
	case first > count && d == Strands:
		r.Text = fmt.Sprintf("[The file has %d lines: line %d is behind its end.]", count, first)
		return r, nil
	case first > count:
		r.Text = ""
		return r, nil
	case last < first:
		return Result{Path: r.Path}, refuse(CodeInvalidRange, "The last line %d is before the first line %d.", last, first)
	}
	lines = slices.Clone(lines[first-1 : last])
	if d == Strands {
		for i := range lines {
			lines[i] = fmt.Sprintf("%6d\t%s", first+i, lines[i])
		}
	}
	if r.Text = strings.Join(lines, "\n"); len(r.Text) > maxPart {
		return Result{Path: r.Path}, refuse(CodeTooLarge, "The lines %d to %d of %s have %d bytes, and at most %d come at once. "+
			"Read fewer lines, or use a command such as grep, head or tail.", first, last, r.Path, len(r.Text), maxPart)
	}
	if d == Strands && (first > 1 || last < count) {
		r.Text += fmt.Sprintf("\n[These are the lines %d to %d of %d. Use offset and limit to read others.]", first, last, count)
	}
	return r, nil
}

// WriteAll is the tool "write" of these two, and "edit" of ours without a text to replace: content as it is takes the
// place of the whole file, and the answer says so in words. want is the hash that the file must have, "" for any.
func (e *Editor) WriteAll(d Dialect, want, path, dir, content string) (Result, error) {
	if d == Strands && !strings.HasPrefix(path, "/") {
		return Result{Path: path}, e.relativePath(d, path)
	}
	r, err := e.WriteExact(want, path, dir, content, 0, -1)
	if err == nil {
		r.Text = fmt.Sprintf("Wrote %d bytes to %s.", len(content), r.Path)
	}
	return r, err
}
