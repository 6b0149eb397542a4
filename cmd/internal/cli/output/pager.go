package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Color is the value of a --color flag.
type Color struct{ format Format }

// AddColor gives c a flag --color.
func AddColor(c *cobra.Command) *Color {
	words := []string{"auto", "always", "never"}
	f := &Color{Format{Value: words[0], allowed: words}}
	c.Flags().Var(&f.format, "color", "show colours: auto, which is on a terminal, always or never")
	_ = c.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return f
}

// Colored returns the style of standard output, and whether its text is for a person: control characters must not be in
// it.
func (s *Streams) Colored(c *Color) (style Style, person bool) {
	style, _ = s.Style()
	if c.format.Value != "auto" {
		style.color = c.format.Value == "always"
	}
	_, terminal := Terminal(s.Stdout)
	return style, terminal || style.color
}

// defaultPager ends at once where all fits in the window, shows colours and nothing else that a terminal acts on, and
// leaves the text on the screen.
var defaultPager = []string{"less", "-FRX"}

// Page has write write to the person's pager where standard output is a terminal, and otherwise, or where there is no
// pager, to standard output. Its output must be harmless to a terminal. Ctrl-C is the pager's meanwhile.
func (s *Streams) Page(write func(w io.Writer) error) error {
	pager := s.pager()
	if pager == "" {
		return s.Unpaged(write)
	}
	cmd := exec.Command("/bin/sh", "-c", pager) //nolint:noctx // it is the person's own, and ends when they leave it
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	cmd.Env = os.Environ()
	if s.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // a PAGER of "less" has to show colours, too
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting the pager: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return s.Unpaged(write)
	}
	signal.Ignore(os.Interrupt)
	out := bufio.NewWriter(in)
	err = errors.Join(write(out), out.Flush(), in.Close())
	ended := cmd.Wait()
	failed, _ := errors.AsType[*exec.ExitError](ended)
	switch {
	case failed != nil && failed.ExitCode() == notFound:
		return s.Unpaged(write) // the shell says so, and shows nothing
	case errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed): // the person has seen enough
		return nil
	}
	return err
}

// notFound is the exit code of a shell whose command does not exist.
const notFound = 127

// pager is the command of the pager, "" for none.
func (s *Streams) pager() string {
	if _, ok := Terminal(s.Stdout); !ok || s.Getenv("TERM") == "dumb" {
		return ""
	}
	switch pager := s.Getenv("PAGER"); pager {
	case "cat":
		return ""
	case "":
		if _, err := exec.LookPath(defaultPager[0]); err != nil {
			return ""
		}
		return strings.Join(defaultPager, " ")
	default:
		return pager
	}
}

// Unpaged has write write to standard output.
func (s *Streams) Unpaged(write func(w io.Writer) error) error {
	out := bufio.NewWriter(s.Stdout)
	err := errors.Join(write(out), out.Flush())
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
