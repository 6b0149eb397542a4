package executor_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// The file tools of Strands' harness and of Anthropic's toolset, word by word.
func TestReadAndWriteTools(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{StateDir: t.TempDir()})
	file := filepath.Join(dir, "f.txt")
	testhelp.WriteFile(t, file, "a\n\tb\nc\n", 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "long"), strings.Repeat("x", 300<<10), 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "p.png"), "\x89PNG", 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "v.mp4"), "\x00\x00", 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "d.pdf"), "text", 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "empty"), "", 0o644)
	const strands, toolset = api.DialectStrands, api.DialectToolset
	for _, tt := range []struct {
		name       string
		action     api.Action
		text, code string
	}{
		{"numbers", api.ReadAction{Dialect: strands, Path: file, Offset: new(0), Limit: new(2000)}, "     1\ta\n     2\t\tb\n     3\tc", ""},
		{"a part", api.ReadAction{Dialect: strands, Path: file, Offset: new(1), Limit: new(1)}, "     2\t\tb\n[These are the lines 2 to 2 of 3. Use offset and limit to read others.]", ""},
		{"behind the last line feed", api.ReadAction{Dialect: strands, Path: file, Offset: new(3), Limit: new(1)}, "[The file has 3 lines: line 4 is behind its end.]", ""},
		{"an empty file", api.ReadAction{Dialect: strands, Path: dir + "/empty", Offset: new(0), Limit: new(1)}, "     1\t", ""},
		{"behind the end", api.ReadAction{Dialect: strands, Path: file, Offset: new(9), Limit: new(1)}, "[The file has 3 lines: line 10 is behind its end.]", ""},
		{"relative", api.ReadAction{Dialect: strands, Path: "f.txt", Offset: new(0), Limit: new(1)}, "The path f.txt is not an absolute path, it should start with `/`. Maybe you meant " + file + "?", "path_not_allowed"},
		{"an image", api.ReadAction{Dialect: strands, Path: dir + "/p.png", Offset: new(0), Limit: new(1)}, "data:image/png;base64,iVBORw==", ""},
		{"a video", api.ReadAction{Dialect: strands, Path: dir + "/v.mp4", Offset: new(0), Limit: new(1)}, "The file " + dir + "/v.mp4 is neither text nor an image but video/mp4, by its name. Use a command such as ffprobe or file to learn about it.", "unsupported"},
		{"a video by line", api.ReadAction{Dialect: toolset, Path: "v.mp4", ViewRange: []int{1, 2}}, "The file " + dir + "/v.mp4 is neither text nor an image but video/mp4, by its name. Use a command such as ffprobe or file to learn about it.", "unsupported"},
		{"no document", api.ReadAction{Dialect: toolset, Path: "d.pdf"}, "Error in converting file to Markdown: it is not a PDF file: it has no header. Please use Python code to read " + dir + "/d.pdf", "unsupported"},
		{"as it is", api.ReadAction{Dialect: toolset, Path: "f.txt"}, "a\n\tb\nc\n", ""},
		{"the last line alone", api.ReadAction{Dialect: toolset, Path: "f.txt", ViewRange: []int{3, 3}}, "c", ""},
		{"to the end", api.ReadAction{Dialect: toolset, Path: "f.txt", ViewRange: []int{2, -1}}, "\tb\nc\n", ""},
		{"more than there is", api.ReadAction{Dialect: toolset, Path: file, ViewRange: []int{3, 99}}, "c\n", ""},
		{"nothing", api.ReadAction{Dialect: toolset, Path: file, ViewRange: []int{9, 10}}, "", ""},
		{"backwards", api.ReadAction{Dialect: toolset, Path: file, ViewRange: []int{3, 2}}, "The last line 2 is before the first line 3.", "invalid_range"},
		{"too much", api.ReadAction{Dialect: toolset, Path: "long"}, "The lines 1 to 1 of " + dir + "/long have 307200 bytes, and at most 262144 come at once. Read fewer lines, or use a command such as grep, head or tail.", "file_too_large"},
		{"no file", api.ReadAction{Dialect: toolset, Path: "none"}, "File not found: " + dir + "/none. Your current working directory is " + dir + ".", "file_not_found"},

		{"write", api.WriteAction{Dialect: strands, Path: dir + "/new/s", Content: "x", End: -1}, "Wrote 1 bytes to " + dir + "/new/s.", ""},
		{"write relative", api.WriteAction{Dialect: strands, Path: "s", Content: "x", End: -1}, "The path s is not an absolute path, it should start with `/`. Maybe you meant " + dir + "/s?", "path_not_allowed"},
		{"write rooted", api.WriteAction{Dialect: toolset, Path: "new/t", Content: "", End: -1}, "Wrote 0 bytes to " + dir + "/new/t.", ""},

		{"edit twice", api.EditAction{Dialect: toolset, Command: "replace", Path: "f.txt", OldStr: new("\n"), NewStr: new(""), Start: 1, End: -1}, "Expected 1 occurrences but found 3", "multiple_matches"},
		{"edit no match", api.EditAction{Dialect: toolset, Command: "replace", Path: "f.txt", OldStr: new("  b"), NewStr: new("d"), Start: 1, End: -1}, "0 occurrences found", "no_match"},
		{"edit all", api.EditAction{Dialect: toolset, Command: "replace", Path: "f.txt", OldStr: new("\n"), NewStr: new(";\n"), AllowMultiple: true, Start: 1, End: -1}, "Replaced 3 occurrence(s) in " + file, ""},
	} {
		o := act(t, e, tt.action)
		text, images := api.Text(o)
		text += strings.Join(images, "")
		_, code := api.ToolFailure(o)
		edits := strings.HasPrefix(tt.name, "edit")
		if text != tt.text && !(edits && strings.HasPrefix(text, tt.text)) || code != tt.code {
			t.Errorf("%s: got %q (%s), want %q (%s)", tt.name, text, code, tt.text, tt.code)
		}
	}
	if got := content(t, file) + content(t, dir+"/new/s") + content(t, dir+"/new/t"); got != "a;\n\tb;\nc;\nx" {
		t.Errorf("got %q in the files", got)
	}
}

// A part is refused as a whole file is, where it takes more in an answer than fits.
func TestReadPartOfControlCharacters(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{MaxFile: 32 << 10})
	testhelp.WriteFile(t, filepath.Join(dir, "f"), strings.Repeat("\x1b", 30<<10), 0o644)
	testhelp.WriteFile(t, filepath.Join(dir, "short"), strings.Repeat("\x1b", 1<<10), 0o644)
	for _, a := range []api.ReadAction{
		{Path: "f", End: -1}, {Path: "f", Dialect: api.DialectToolset}, {Path: dir + "/f", Dialect: api.DialectStrands, Offset: new(0), Limit: new(9)},
	} {
		o := act(t, e, a)
		if _, code := api.ToolFailure(o); code != "file_too_large" {
			t.Errorf("%+v: got %.100q (%s)", a, api.Content(o), code)
		}
		a.Path = strings.TrimSuffix(a.Path, "f") + "short"
		if o, ok := act(t, e, a).(api.ReadObservation); !ok || strings.Count(o.Content, "\x1b") != 1<<10 {
			t.Errorf("%+v: got %.100q", a, api.Content(o))
		}
	}
}
