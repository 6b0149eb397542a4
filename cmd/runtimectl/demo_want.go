package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
)

// want is what must come of a step. The zero value wants a command to succeed
// and an edit or a read not to be refused.
type want struct {
	// exit is the exit code of a run that ended.
	exit int
	// running wants a run that was answered because its time was over.
	running bool
	// exactly is the whole content; nil for any.
	exactly *string
	// holds are pieces of the content.
	holds []string
	// diff is every line that changed, in order, with its - or +; nil for any.
	diff []string
	// files are names that must be in the directory after an upload.
	files []string
}

// words says what must come of an action of the kind.
func (w want) words(kind string) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case w.running:
		add("still running")
	case kind == api.RunAction{}.Kind():
		add("exit code %d", w.exit)
	}
	switch {
	case w.exactly == nil:
	case *w.exactly == "":
		add("no output")
	default:
		add("exactly %q", *w.exactly)
	}
	for _, piece := range w.holds {
		add("says %q", piece)
	}
	if w.diff != nil {
		removed, added := 0, 0
		for _, line := range w.diff {
			if line[0] == '-' {
				removed++
			} else {
				added++
			}
		}
		add("diff -%d +%d", removed, added)
	}
	if len(w.files) > 0 {
		add("has %s", strings.Join(w.files, ", "))
	}
	return strings.Join(words, ", ")
}

// check compares an observation with what must come of an action of the kind.
// The error says what is different.
func (w want) check(kind string, o api.Observation) error {
	if o.Kind() != kind {
		return fmt.Errorf("the answer to %s is %s: %s", kind, o.Kind(), firstLine(content(o)))
	}
	got := content(o)
	if run, ok := o.(api.RunObservation); ok {
		if err := w.checkEnd(run.Metadata); err != nil {
			return err
		}
	} else if text, refused := strings.CutPrefix(got, "ERROR:"); refused {
		return fmt.Errorf("it was refused: %s", firstLine(strings.TrimSpace(text)))
	}
	if w.exactly != nil && got != *w.exactly {
		return fmt.Errorf("the output is %q instead of %q", excerpt(got), *w.exactly)
	}
	for _, piece := range w.holds {
		if !strings.Contains(got, piece) {
			return fmt.Errorf("%q is not in the output", piece)
		}
	}
	if changed := changedLines(diff(o)); w.diff != nil && !slices.Equal(changed, w.diff) {
		return fmt.Errorf("the diff has the lines %q instead of %q", changed, w.diff)
	}
	return nil
}

// timedOut begins the note under a command that still runs (openhands.md,
// section 4).
const timedOut = "[The command timed out after "

func (w want) checkEnd(m api.RunMetadata) error {
	running := m.ExitCode == -1 && strings.Contains(m.Suffix, timedOut)
	switch {
	case w.running && !running:
		return fmt.Errorf("it ended with exit code %d instead of running on", m.ExitCode)
	case w.running:
		return nil
	case running:
		return errors.New("it still runs")
	case m.ExitCode != w.exit:
		return fmt.Errorf("the exit code is %d instead of %d", m.ExitCode, w.exit)
	}
	return nil
}

// checkFiles looks for the wanted names among those of a directory.
func (w want) checkFiles(names []string) error {
	for _, name := range w.files {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the file %s is not there", name)
		}
	}
	return nil
}

// content is what an observation says.
func content(o api.Observation) string {
	switch o := o.(type) {
	case api.RunObservation:
		return o.Content
	case api.ReadObservation:
		return o.Content
	case api.EditObservation:
		return o.Content
	case api.ErrorObservation:
		return o.Content
	default:
		return ""
	}
}

// diff is what an observation says was changed.
func diff(o api.Observation) string {
	switch o := o.(type) {
	case api.EditObservation:
		return o.Diff
	case api.WriteObservation:
		return o.Diff
	default:
		return ""
	}
}

// changedLines are the lines of a diff of one file that were removed or added.
func changedLines(diff string) []string {
	var changed []string
	inside := false // the two lines before the first @@ are names
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "@@"):
			inside = true
		case inside && line != "" && (line[0] == '-' || line[0] == '+'):
			changed = append(changed, line)
		}
	}
	return changed
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return clean(excerpt(line))
}

// excerpt keeps an error readable.
func excerpt(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + cutMark
}
