package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/cmd/internal/cli/transfer"
	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) cp() *cobra.Command {
	c := &cobra.Command{
		Use:   "cp SANDBOX:PATH DEST|-\n  runtimectl cp SOURCE|- SANDBOX:PATH",
		Short: "Copy files out of a sandbox and into it",
		Long: `Cp copies a file, or a directory with all that is in it, between this machine and
a sandbox. A path in the sandbox that is not absolute begins where its shells start.

As with docker cp, what is copied goes into the destination if that is a
directory, and otherwise gets its name; a source that ends with "/." is the
content of a directory. "-" is a tar archive on standard input or output.

What is copied into a sandbox belongs to the user of its commands, and is written
with that user's rights. The sandbox must run.

What is copied out of a sandbox, whether it runs or not, belongs to you, and is treated as the work of an
attacker: no file is written outside of the destination or beyond the free space,
and links that lead out of what is copied, devices and the like are left out, which
is said. No set-uid bit is kept, and holes stay holes.`,
		Example: `  runtimectl cp build:dist ./dist
  runtimectl cp . build:/workspace
  runtimectl cp build:/var/log - | tar -t
  git archive HEAD | runtimectl cp - build:/workspace`,
		Args: command.ArgRange(2, 2),
	}
	c.ValidArgsFunction = p.completeCopy
	c.RunE = func(cmd *cobra.Command, args []string) (failed error) {
		from, fromPath, out := splitRemote(args[0])
		to, toPath, in := splitRemote(args[1])
		defer func() {
			if failed != nil && cmd.Context().Err() != nil {
				failed = &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}
			}
		}()
		switch {
		case in && out:
			return command.Usage(cmd, errors.New("both are in a sandbox: copy to this machine first, or pipe one cp into another with -"))
		case out:
			return p.copyOut(cmd.Context(), from, fromPath, args[1])
		case in:
			return p.copyIn(cmd.Context(), args[0], to, toPath)
		}
		return command.Usage(cmd, fmt.Errorf("neither %q nor %q is in a sandbox: write SANDBOX:PATH", args[0], args[1]))
	}
	return c
}

// completeCopy completes SANDBOX:, a path in one, or a file of this machine.
func (p *program) completeCopy(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if ref, begun, remote := splitRemote(begun); remote && len(args) < 2 {
		found, directive := p.CompletePaths(cmd, []string{ref}, begun)
		for i, word := range found {
			found[i] = ref + ":" + word
		}
		return found, directive
	}
	if len(args) >= 2 || strings.ContainsAny(begun, "/.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found []cobra.Completion
	for _, name := range p.SandboxNames(cmd, nil, begun, nil) {
		word, about, _ := strings.Cut(name, "\t")
		found = append(found, word+":\t"+about)
	}
	if len(found) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return found, cobra.ShellCompDirectiveNoSpace
}

var remotePattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_.-]*):(.*)$`)

// splitRemote takes SANDBOX:PATH apart. A path of this machine with a colon in
// it is written ./like:this.
func splitRemote(word string) (ref, path string, remote bool) {
	parts := remotePattern.FindStringSubmatch(word)
	if parts == nil {
		return "", word, false
	}
	return parts[1], parts[2], true
}

// copyOut copies out of a sandbox.
func (p *program) copyOut(ctx context.Context, ref, given, dest string) error {
	if _, ok := output.Terminal(p.Stdout); dest == "-" && ok {
		return errors.New("an archive is not for a terminal: redirect standard output")
	}
	return p.OnFiles(ctx, ref, func(files sandbox.Files, s *sandbox.Sandbox) error {
		from, err := transfer.Look(ctx, files, s, given)
		if err != nil {
			return err
		}
		if !from.Found {
			return from.NotFound(s)
		}
		data, err := files.CopyOut(ctx, s, from.Real)
		if err != nil {
			return err
		}
		defer func() { _ = data.Close() }()
		line := p.Progress()
		defer line.End()
		counted := &counter{Reader: data, line: line, what: from.Path, stopped: ctx.Err, begun: time.Now()}
		if from.Info.Mode.IsRegular() {
			counted.total = from.Info.Size
		}
		if dest == "-" {
			if _, err := io.Copy(p.Stdout, counted); err != nil {
				return fmt.Errorf("copying %s: %w", from.Path, err)
			}
			return nil
		}
		notes := p.leftOut(line)
		defer notes.end()
		unpacking := transfer.Unpacking{Dest: dest, Name: path.Base(from.Path), Content: from.Content, Open: p.OpenFile, LeftOut: notes.add}
		if err := unpacking.Unpack(counted); err != nil {
			return fmt.Errorf("copying %s to %s: %w", from.Path, dest, command.Absent(err))
		}
		return nil
	})
}

// copyIn copies into a sandbox.
func (p *program) copyIn(ctx context.Context, source, ref, given string) error {
	return p.OnFiles(ctx, ref, func(files sandbox.Files, s *sandbox.Sandbox) error {
		if !platform.Serves(s) {
			return platform.NotRunning(s)
		}
		to, err := transfer.Look(ctx, files, s, given)
		if err != nil {
			return err
		}
		dir, name := to.Real, ""
		counted := &counter{what: source, stopped: ctx.Err, begun: time.Now()}
		if source == "-" {
			counted.what = "standard input"
			if !to.Found || !to.Info.Mode.IsDir() {
				return fmt.Errorf("directory %s in sandbox %s: %w", to.Path, s.ID, command.ErrNotFound)
			}
		} else if dir, name, err = target(source, to); err != nil {
			if errors.Is(err, command.ErrNotFound) {
				return fmt.Errorf("%s: %w", source, err)
			}
			return fmt.Errorf("copying %s to sandbox %s: %w", source, s.ID, err)
		} else if err := to.HasDir(ctx, files, s); err != nil {
			return err
		}
		if info, err := os.Stat(source); err == nil && info.Mode().IsRegular() {
			counted.total = info.Size()
		}
		counted.line = p.Progress()
		defer counted.line.End()
		notes := p.leftOut(counted.line)
		defer notes.end()
		return send(ctx, files, s, dir, counted, func(w io.Writer) error {
			pack := &archive.Packer{Out: tar.NewWriter(w), LeftOut: notes.add}
			var err error
			if source == "-" {
				if err = pack.Pass(p.Stdin); err != nil {
					err = fmt.Errorf("standard input: %w", err)
				}
			} else {
				err = transfer.Pack(pack, source, name, p.OpenFile)
			}
			if err != nil {
				return err
			}
			return pack.Out.Close()
		})
	})
}

// target says into which directory of a sandbox, and under which name, a file or
// directory of this machine goes.
func target(source string, to transfer.RemotePath) (dir, name string, err error) {
	info, err := os.Lstat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", command.ErrNotFound
	}
	if err != nil {
		return "", "", err
	}
	content := transfer.IsContent(source)
	switch {
	case to.Found && to.Info.Mode.IsDir() && content:
		return to.Real, ".", nil
	case to.Found && to.Info.Mode.IsDir():
		return to.Real, filepath.Base(source), nil
	case to.Found && info.IsDir():
		return "", "", command.Conflict("%s is there and is not a directory", to.Path)
	case !to.Found && to.Slash && !info.IsDir():
		return "", "", fmt.Errorf("directory %s: %w", to.Path, command.ErrNotFound)
	}
	return path.Dir(to.Real), path.Base(to.Real), nil
}

// send gives the bytes of write to the sandbox, as they come.
func send(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, dir string, counted *counter, write func(io.Writer) error) error {
	r, w := io.Pipe()
	counted.Reader = r
	wrote := make(chan error, 1)
	go func() { // ends with the reader, at the latest
		err := write(w)
		_ = w.CloseWithError(err) // never fails
		wrote <- err
	}()
	err := files.CopyIn(ctx, s, dir, counted)
	_ = r.CloseWithError(errReaderGone) // never fails
	if failed := <-wrote; failed != nil && !errors.Is(failed, errReaderGone) {
		return failed // the reason of the other
	}
	return command.Absent(err)
}

var errReaderGone = errors.New("the reader is gone")

// counter says on the progress line how much was read, and how fast. Reading fails once
// stopped returns an error.
type counter struct {
	io.Reader
	line    *output.Progress
	what    string
	total   int64 // bytes; 0: not known
	stopped func() error
	begun   time.Time
	n       int64
}

// Read reads and counts.
func (c *counter) Read(b []byte) (int, error) {
	if err := c.stopped(); err != nil {
		return 0, err
	}
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	c.line.Count("copying %s: %s", c.what, c.figures(time.Since(c.begun)))
	return n, err
}

// figures are how much, of how much, and how fast.
func (c *counter) figures(took time.Duration) string {
	text := output.Size(c.n)
	if c.total > 0 {
		text = output.Size(min(c.n, c.total)) + " of " + output.Size(c.total)
	}
	if took >= time.Second {
		text += ", " + output.Size(int64(float64(c.n)/took.Seconds())) + "/s"
	}
	return text
}

// leftOut collects the files that a copy leaves out, for a few notes at its end.
type leftOut struct {
	p     *program
	line  *output.Progress
	texts []string
	more  int
}

// mostNotes is how many things that are left out are named.
const mostNotes = 10

func (p *program) leftOut(line *output.Progress) *leftOut { return &leftOut{p: p, line: line} }

func (l *leftOut) add(text string) {
	if len(l.texts) == mostNotes {
		l.more++
		return
	}
	l.texts = append(l.texts, text)
}

// end writes the notes.
func (l *leftOut) end() {
	l.line.End()
	for _, text := range l.texts {
		_, _ = fmt.Fprintf(l.p.Stderr, "note: left out: %s\n", output.Clean(text))
	}
	if l.more > 0 {
		_, _ = fmt.Fprintf(l.p.Stderr, "note: left out: %d more\n", l.more)
	}
}
