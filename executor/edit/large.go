package edit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// maxLargeLine is how many bytes of a line a view of a large file shows.
	maxLargeLine = 4000
	// defaultMaxScan is how many bytes of a file are read to count lines or to hash it: a hole of terabytes costs an agent
	// nothing, and reading it would hold the file's lock for hours.
	defaultMaxScan = 64 << 30
)

// tooLong refuses to read more than e.maxScan bytes.
func (e *Editor) tooLong(p place) *Error {
	return refuse(CodeTooLarge, "The file %s has more than the %.0f MB that are read to count lines or to hash it. Use commands such as tail and sha256sum.",
		p.shown, float64(e.maxScan)/(1<<20))
}

// viewLarge shows lines of a file that is too large to be loaded, without a hash, in constant memory.
func (e *Editor) viewLarge(p place, lines []int) (Result, error) {
	if len(lines) == 0 {
		lines = []int{1, -1}
	}
	if len(lines) != 2 || lines[0] < 1 || lines[1] != -1 && lines[1] < lines[0] {
		return Result{}, invalid(CodeInvalidRange, "view_range", list(lines), "It should be a list of two integers, of which the first is "+
			"at least 1, and the second one -1 or at least the first.")
	}
	in, size, err := e.openRegular(p)
	if err != nil {
		return Result{}, err
	}
	defer in.Close()
	r := bufio.NewReaderSize(io.NewSectionReader(in, 0, min(size, e.maxScan)), 256<<10)
	if head, _ := r.Peek(8 << 10); isBinary(head, utf8.Valid(head)) {
		return Result{}, e.notText(p)
	}
	var shown strings.Builder
	number, chars := 0, 0
	for number < lines[1] || lines[1] == -1 {
		line, err := lineOf(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Result{}, unreadable(p.shown, err)
		}
		if number+1 < lines[0] {
			number++
			continue
		}
		line = printable(line)
		if chars += utf8.RuneCountInString(line) + 1; chars > maxShown {
			fmt.Fprintf(&shown, "NOTE: View [%d, -1] to go on.\n", number+1)
			break
		}
		number++
		fmt.Fprintf(&shown, "%6d\t%s\n", number, line)
	}
	if number < lines[0] && size > e.maxScan {
		return Result{}, e.tooLong(p)
	}
	if number < lines[0] {
		return Result{}, invalid(CodeInvalidRange, "view_range", list(lines), fmt.Sprintf(
			"Its first element `%d` should be within the range of lines of the file: [1, %d].", lines[0], number))
	}
	return Result{Existed: true, Text: "Here's the result of running `cat -n` on " + p.shown + ":\n" + shown.String()}, nil
}

// lineOf reads a line and returns its beginning, without its end. It fails with io.EOF behind the last line.
func lineOf(r *bufio.Reader) (string, error) {
	part, err := r.ReadSlice('\n')
	if len(part) == 0 && err != nil {
		return "", err
	}
	line, cut := string(part[:min(len(part), maxLargeLine)]), len(part) > maxLargeLine
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
		cut = true
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if cut {
		return strings.ToValidUTF8(line, "") + "... [truncated]", nil
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}
