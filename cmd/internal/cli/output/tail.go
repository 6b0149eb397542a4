package output

import "strings"

const (
	// TailBytes is how much of a program's output is kept for an error message, and
	// tailLines how many lines of it are shown.
	TailBytes = 8 << 10
	tailLines = 10
)

// LastLines returns the last lines of a program's output for the end of an error
// message.
func LastLines(output string) string {
	output = strings.TrimSpace(output)
	if output == "" {
		return "; it said nothing"
	}
	lines := strings.Split(output, "\n")
	var b strings.Builder
	b.WriteString("; its last words:")
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		b.WriteString("\n  " + Clean(strings.TrimSuffix(line, "\r")))
	}
	return b.String()
}
