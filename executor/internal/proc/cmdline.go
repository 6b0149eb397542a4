package proc

import (
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/actiond/actiond/internal/shorten"
)

// MaxCommandLine bounds the result of CommandLine, in bytes.
const MaxCommandLine = 256

// CommandLine returns the start of a process's command line as one line of text, "" where
// it cannot be read. The process can make it as long as it likes, and of any characters:
// those that cannot be printed become U+FFFD.
func CommandLine(pid int) string {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	line := make([]byte, MaxCommandLine)
	n, _ := file.Read(line) // an error leaves it empty
	words := strings.TrimRight(strings.ReplaceAll(string(line[:n]), "\x00", " "), " ")
	return shorten.Bytes(Printable(words), MaxCommandLine)
}

// Printable returns text with a blank for each white space, and U+FFFD for each other
// character that cannot be printed.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
