package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

const (
	// mostLines of an observation, and of a diff, are shown.
	mostLines = 12
	// indent stands before everything that belongs to a step.
	indent = "    "
	gutter = indent + "| "
)

// textReport prints steps for a person.
type textReport struct {
	out   io.Writer
	style style
	dir   string // is left out of the paths of files
}

func (t textReport) part(p part) error {
	title := cut(clean(p.title), t.style.width)
	_, err := fmt.Fprintf(t.out, "\n%s\n%s\n", t.style.paint(bold, title), t.style.paint(dim, strings.Repeat("-", len(title))))
	return err
}

func (t textReport) begin(number int, s step) error {
	_, err := fmt.Fprintf(t.out, "\n%s  %s\n%s\n", t.style.paint(bold, fmt.Sprintf("%2d", number)),
		s.say, t.style.paint(cyan, t.fit(indent+"> ", s.describe(t.dir))))
	return err
}

func (t textReport) end(_ int, _ part, s step, r result) error {
	var b strings.Builder
	switch {
	case r.observation != nil:
		t.block(&b, t.lines(content(r.observation)))
		t.block(&b, t.diffLines(diff(r.observation)))
	case r.files != nil:
		t.block(&b, []string{fmt.Sprintf("%d names are there now", len(r.files))})
	}
	took := t.style.paint(dim, fmt.Sprintf("%8s ms", formatMilliseconds(r.took)))
	wanted := clean(s.want.words(s.kind()))
	switch r.status {
	case passed:
		fmt.Fprintf(&b, "%s%s %s  %s\n", indent, t.style.paint(green, "ok     "), took, wanted)
	case failed:
		fmt.Fprintf(&b, "%s%s %s  %s\n%swanted: %s\n", indent, t.style.paint(red, "FAILED "), took, clean(r.reason), indent, wanted)
	case skipped:
		fmt.Fprintf(&b, "%s%s %s\n", indent, t.style.paint(yellow, "skipped"), clean(r.reason))
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// lines makes text harmless and bounds it.
func (t textReport) lines(text string) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	return t.shorten(strings.Split(text, "\n"), func(line string) string {
		return t.fit(gutter, strings.TrimSuffix(line, "\r"))[len(gutter):]
	})
}

// diffLines is lines with the colours of a diff of one file.
func (t textReport) diffLines(diff string) []string {
	diff = strings.TrimRight(diff, "\n")
	if diff == "" {
		return nil
	}
	inside := false // the lines before the first @@ are names
	var painted []string
	for line := range strings.SplitSeq(diff, "\n") {
		color := dim
		switch {
		case strings.HasPrefix(line, "@@"):
			inside, color = true, cyan
		case inside && strings.HasPrefix(line, "-"):
			color = red
		case inside && strings.HasPrefix(line, "+"):
			color = green
		}
		painted = append(painted, t.style.paint(color, t.fit(gutter, line)[len(gutter):]))
	}
	return t.shorten(painted, func(line string) string { return line })
}

// shorten keeps the ends of a long text.
func (t textReport) shorten(lines []string, show func(string) string) []string {
	head, left, tail := shorten(lines, mostLines)
	var shown []string
	for _, line := range head {
		shown = append(shown, show(line))
	}
	if left > 0 {
		shown = append(shown, t.style.paint(dim, fmt.Sprintf("(%d lines left out)", left)))
	}
	for _, line := range tail {
		shown = append(shown, show(line))
	}
	return shown
}

// block prints lines behind the gutter.
func (t textReport) block(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "%s%s\n", t.style.paint(dim, gutter), line)
	}
}

// fit puts a line behind a prefix and cuts it to the terminal.
func (t textReport) fit(prefix, line string) string {
	return prefix + cut(clean(line), max(t.style.width-len(prefix), 0))
}

// describe is the action in a line that a person can read; files in dir have
// their names only.
func (s step) describe(dir string) string {
	name := func(path string) string {
		if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
		return path
	}
	if s.upload != nil {
		return fmt.Sprintf("upload   %s (%d KB, unpacked there)", name(s.upload.destination), len(s.upload.archive)>>10)
	}
	limit := ""
	if s.seconds > 0 {
		limit = fmt.Sprintf("   (answer within %v s)", s.seconds)
	}
	switch a := s.action.(type) {
	case api.RunAction:
		switch {
		case a.IsInput:
			return "keys     " + a.Command + limit
		case a.Command == "":
			return "run      \"\"" + limit
		}
		return "run      " + a.Command + limit
	case api.ReadAction:
		return "read     " + name(a.Path) + lineRange(a.ViewRange)
	case api.EditAction:
		return "edit     " + a.Command + " " + name(a.Path) + atLine(a.InsertLine)
	default:
		return s.kind()
	}
}

func atLine(n *string) string {
	if n == nil {
		return ""
	}
	return ", after line " + *n
}

func lineRange(lines []int) string {
	if len(lines) != 2 {
		return ""
	}
	return fmt.Sprintf(", lines %d to %d", lines[0], lines[1])
}

// formatMilliseconds keeps three digits, at most one of them a fraction.
func formatMilliseconds(d time.Duration) string {
	ms := milliseconds(d)
	digits := 1
	if ms >= 100 {
		digits = 0
	}
	return strconv.FormatFloat(ms, 'f', digits, 64)
}

// summary prints what the steps came to, and how to go on.
func (t textReport) summary(sum *tally, took time.Duration, again string) error {
	var b strings.Builder
	b.WriteString("\n" + t.style.paint(bold, "Summary") + "\n")
	fmt.Fprintf(&b, "%s%d steps: %s, %s, %s; %.1f s in all\n\n", indent, len(sum.statuses),
		t.counted(green, sum.count(passed), "ok"), t.counted(red, sum.count(failed), "failed"),
		t.counted(yellow, sum.count(skipped), "skipped"), took.Seconds())
	fmt.Fprintf(&b, "%s%s\n", indent, t.style.paint(dim, fmt.Sprintf("%-18s %6s %12s %12s", "action", "steps", "median ms", "total ms")))
	for _, kind := range sum.kinds {
		times := sum.times[kind]
		fmt.Fprintf(&b, "%s%-18s %6d %12s %12s\n", indent, kind, len(times),
			formatMilliseconds(median(times)), formatMilliseconds(total(times)))
	}
	fmt.Fprintf(&b, "\n%s\n%s%s\n", t.style.paint(bold, "Next, by hand"), indent, strings.ReplaceAll(again, "\n", "\n"+indent))
	_, err := io.WriteString(t.out, b.String())
	return err
}

// counted is a number with its word, in colour unless it is none.
func (t textReport) counted(color string, n int, word string) string {
	text := fmt.Sprintf("%d %s", n, word)
	if n == 0 {
		return text
	}
	return t.style.paint(color, text)
}
