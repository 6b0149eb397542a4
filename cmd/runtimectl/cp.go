package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/actiond/actiond/cmd/runtimectl/internal/transfer"
	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) cp() *cobra.Command {
	c := &cobra.Command{
		Use:   "cp SANDBOX:PATH DEST|-\n  runtimectl cp SOURCE|- SANDBOX:PATH",
		Short: "Copy files out of a sandbox and into it",
		Long: `Cp copies a file, or a directory with all that is in it, between this machine and
a sandbox, whether that runs or not. A path in the sandbox that is not absolute
begins where its shells start.

As with docker cp, what is copied goes into the destination if that is a
directory, and otherwise gets its name; a source that ends with "/." is the
content of a directory. "-" is a tar archive on standard input or output.

What is copied into a sandbox belongs to the user of its commands, and is written
with that user's rights. While the sandbox does not run, it may go anywhere, but
through no symbolic link.

What is copied out of a sandbox belongs to you, and is treated as the work of an
attacker: no file is written outside of the destination or beyond the free space,
and links that lead out of what is copied, devices and the like are left out, which
is said. No set-uid bit is kept, and holes stay holes.`,
		Example: `  runtimectl cp build:dist ./dist
  runtimectl cp . build:/workspace
  runtimectl cp build:/var/log - | tar -t
  git archive HEAD | runtimectl cp - build:/workspace`,
		Args: takes(2, 2),
	}
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= 2 || strings.ContainsAny(begun, "/.:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var found []cobra.Completion
		for _, name := range p.sandboxNames(cmd, nil, begun, nil) {
			word, about, _ := strings.Cut(name, "\t")
			found = append(found, word+":\t"+about)
		}
		return found, cobra.ShellCompDirectiveNoSpace
	}
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, args []string) (failed error) {
		from, fromPath, out := splitRemote(args[0])
		to, toPath, in := splitRemote(args[1])
		defer func() {
			if failed != nil && cmd.Context().Err() != nil {
				failed = &exitError{code: exitInterrupted, why: "interrupted"}
			}
		}()
		switch {
		case in && out:
			return &usageError{cmd.CommandPath(), errors.New("both are in a sandbox: copy to this machine first, or pipe one cp into another with -")}
		case out:
			return p.copyOut(cmd.Context(), from, fromPath, args[1])
		case in:
			return p.copyIn(cmd.Context(), args[0], to, toPath)
		}
		return &usageError{cmd.CommandPath(), fmt.Errorf("neither %q nor %q is in a sandbox: write SANDBOX:PATH", args[0], args[1])}
	}
	return c
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
	if file, ok := p.stdout.(*os.File); dest == "-" && ok && term.IsTerminal(int(file.Fd())) {
		return errors.New("an archive is nothing for a terminal: send standard output somewhere else")
	}
	return p.onFiles(ctx, ref, func(files sandbox.Files, s *sandbox.Sandbox) error {
		from, err := look(ctx, files, s, given)
		if err != nil {
			return err
		}
		if !from.found {
			return fmt.Errorf("%s in sandbox %s: %w", from.path, s.ID, errNotFound)
		}
		data, err := files.CopyOut(ctx, s, from.real)
		if err != nil {
			return err
		}
		defer func() { _ = data.Close() }()
		line := p.progress()
		defer line.end()
		counted := &counter{Reader: data, line: line, what: from.path, stopped: ctx.Err, begun: time.Now()}
		if from.info.Mode.IsRegular() {
			counted.total = from.info.Size
		}
		if dest == "-" {
			if _, err := io.Copy(p.stdout, counted); err != nil {
				return fmt.Errorf("copying %s: %w", from.path, err)
			}
			return nil
		}
		notes := p.leftOut(line)
		defer notes.end()
		unpacking := transfer.Unpacking{Dest: dest, Name: path.Base(from.path), Content: from.content, Open: p.openFile, LeftOut: notes.add}
		if err := unpacking.Unpack(counted); err != nil {
			return fmt.Errorf("copying %s to %s: %w", from.path, dest, absent(err))
		}
		return nil
	})
}

// copyIn copies into a sandbox.
func (p *program) copyIn(ctx context.Context, source, ref, given string) error {
	return p.onFiles(ctx, ref, func(files sandbox.Files, s *sandbox.Sandbox) error {
		to, err := look(ctx, files, s, given)
		if err != nil {
			return err
		}
		if err := to.direct(s); err != nil {
			return err
		}
		dir, name := to.real, ""
		if source == "-" {
			if !to.found || !to.info.Mode.IsDir() {
				return fmt.Errorf("directory %s in sandbox %s: %w", to.path, s.ID, errNotFound)
			}
		} else if dir, name, err = target(source, to); err != nil {
			return fmt.Errorf("copying %s to sandbox %s: %w", source, s.ID, err)
		}
		owner, err := ownerOf(ctx, files, s)
		if err != nil {
			return err
		}
		line := p.progress()
		defer line.end()
		notes := p.leftOut(line)
		defer notes.end()
		return p.send(ctx, files, s, dir, func(w io.Writer) error {
			pack := &archive.Packer{Out: tar.NewWriter(w), Owner: owner, LeftOut: notes.add}
			var err error
			if source == "-" {
				if err = pack.Pass(p.stdin); err != nil {
					err = fmt.Errorf("standard input: %w", err)
				}
			} else {
				err = transfer.Pack(pack, source, name, p.openFile)
			}
			if err != nil {
				return err
			}
			return pack.Out.Close()
		}, line)
	})
}

// target says into which directory of a sandbox, and under which name, a file or
// directory of this machine goes.
func target(source string, to remotePath) (dir, name string, err error) {
	info, err := os.Lstat(source)
	if err != nil {
		return "", "", absent(err)
	}
	content := transfer.IsContent(source)
	switch {
	case to.found && to.info.Mode.IsDir() && content:
		return to.real, ".", nil
	case to.found && to.info.Mode.IsDir():
		return to.real, filepath.Base(source), nil
	case to.found && info.IsDir():
		return "", "", fmt.Errorf("%w: %s is there and is no directory", errConflict, to.path)
	case !to.found && to.slash && !info.IsDir():
		return "", "", fmt.Errorf("directory %s: %w", to.path, errNotFound)
	}
	return path.Dir(to.real), path.Base(to.real), nil
}

// send gives what write writes to the sandbox, as it comes.
func (p *program) send(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, dir string, write func(io.Writer) error, line *progress) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() { // ends with the reader, at the latest
		err := write(w)
		_ = w.CloseWithError(err) // never fails
		wrote <- err
	}()
	err := files.CopyIn(ctx, s, dir, &counter{Reader: r, line: line, what: dir, stopped: ctx.Err, begun: time.Now()})
	_ = r.CloseWithError(errReaderGone) // never fails
	if failed := <-wrote; failed != nil && !errors.Is(failed, errReaderGone) {
		return failed // the reason of the other
	}
	return absent(err)
}

var errReaderGone = errors.New("nobody reads any more")

// counter says on the progress line how much was read, and how fast. Reading fails once
// stopped returns an error.
type counter struct {
	io.Reader
	line    *progress
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
	c.line.count("copying %s: %s", c.what, c.figures(time.Since(c.begun)))
	return n, err
}

// figures are how much, of how much, and how fast.
func (c *counter) figures(took time.Duration) string {
	text := size(c.n)
	if c.total > 0 {
		text = size(min(c.n, c.total)) + " of " + size(c.total)
	}
	if took >= time.Second {
		text += ", " + size(int64(float64(c.n)/took.Seconds())) + "/s"
	}
	return text
}

// leftOut collects what a copy leaves out, for a few notes at its end.
type leftOut struct {
	p     *program
	line  *progress
	texts []string
	more  int
}

// mostNotes is how many things that are left out are named.
const mostNotes = 10

func (p *program) leftOut(line *progress) *leftOut { return &leftOut{p: p, line: line} }

func (l *leftOut) add(text string) {
	if len(l.texts) == mostNotes {
		l.more++
		return
	}
	l.texts = append(l.texts, text)
}

// end writes the notes.
func (l *leftOut) end() {
	l.line.end()
	for _, text := range l.texts {
		_, _ = fmt.Fprintf(l.p.stderr, "note: left out: %s\n", clean(text))
	}
	if l.more > 0 {
		_, _ = fmt.Fprintf(l.p.stderr, "note: left out: %d more\n", l.more)
	}
}
