package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/actiond/actiond/docker"
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

What is copied into a sandbox belongs to the user of its commands. What is copied
out of it belongs to you, and is taken for the work of an enemy: no file is
written outside of the destination, links that lead out of what is copied,
devices and the like are left out, which is said, and no set-uid bit is kept.`,
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
	c.RunE = func(cmd *cobra.Command, args []string) error {
		from, fromPath, out := splitRemote(args[0])
		to, toPath, in := splitRemote(args[1])
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

// remotePath is a path in a sandbox, as it is and what it leads to when links
// are followed there.
type remotePath struct {
	path  string // absolute and clean
	real  string
	info  docker.FileInfo // of real
	found bool
	// content tells that the path ended with "/.", slash that it ended with "/".
	content, slash bool
}

// mostLinks is how many links of a path are followed, one after another.
const mostLinks = 16

// look finds out what is at a path of a sandbox.
func look(ctx context.Context, where place, s *sandbox, given string) (remotePath, error) {
	r := remotePath{content: given == "." || strings.HasSuffix(given, "/."), slash: strings.HasSuffix(given, "/")}
	if !path.IsAbs(given) {
		dir, err := where.WorkDir(ctx, s)
		if err != nil {
			return r, err
		}
		given = path.Join(dir, given)
	}
	r.path = path.Clean(given)
	r.real = r.path
	for range mostLinks {
		info, err := where.Stat(ctx, s, r.real)
		if errors.Is(err, fs.ErrNotExist) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if info.Mode&fs.ModeSymlink == 0 {
			r.info, r.found = info, true
			return r, nil
		}
		target := info.LinkTarget
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(r.real), target)
		}
		r.real = path.Clean(target)
	}
	return r, fmt.Errorf("%w: there are too many links at %s in sandbox %s", errConflict, r.path, s.ID)
}

// copyOut copies out of a sandbox.
func (p *program) copyOut(ctx context.Context, ref, given, dest string) error {
	if file, ok := p.stdout.(*os.File); dest == "-" && ok && term.IsTerminal(int(file.Fd())) {
		return errors.New("an archive is nothing for a terminal: send standard output somewhere else")
	}
	return p.on(ctx, ref, func(where place, s *sandbox) error {
		from, err := look(ctx, where, s, given)
		if err != nil {
			return err
		}
		if !from.found {
			return fmt.Errorf("%s in sandbox %s: %w", from.path, s.ID, errNotFound)
		}
		archive, err := where.CopyOut(ctx, s, from.real)
		if err != nil {
			return err
		}
		defer func() { _ = archive.Close() }()
		line := p.progress()
		defer line.end()
		counted := &counter{Reader: archive, line: line, what: from.path}
		if dest == "-" {
			if _, err := io.Copy(p.stdout, counted); err != nil {
				return fmt.Errorf("copying %s: %w", from.path, err)
			}
			return nil
		}
		notes := p.leftOut(line)
		defer notes.end()
		if err := unpackAt(counted, dest, from, notes.add); err != nil {
			return fmt.Errorf("copying %s to %s: %w", from.path, dest, err)
		}
		return nil
	})
}

// unpackAt unpacks what CopyOut gave of a path at dest.
func unpackAt(archive io.Reader, dest string, from remotePath, note func(string)) error {
	in := tar.NewReader(archive)
	first, err := in.Next()
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	isDir := first.Typeflag == tar.TypeDir
	base := path.Base(from.path)
	info, err := os.Stat(dest)
	there := err == nil && info.IsDir()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !there && isDir:
		return fmt.Errorf("%w: %s is there and is no directory", errConflict, dest)
	case err != nil && !isDir && strings.HasSuffix(dest, "/"):
		return fmt.Errorf("directory %s: %w", dest, errNotFound)
	case there && isDir && (from.content || base == "/"):
		base = "."
	case there:
		dest = filepath.Join(dest, base)
	}
	u := &unpacker{in: in, note: note, top: path.Clean(first.Name)}
	if !isDir {
		return u.single(first, dest)
	}
	if base != "." {
		if u.rootIsNew, err = makeDir(dest); err != nil {
			return err
		}
	}
	if u.root, err = os.OpenRoot(dest); err != nil {
		return err
	}
	defer func() { _ = u.root.Close() }()
	return u.unpack(first)
}

// makeDir makes a directory where there is none. A link to one is not taken for
// it: the sandbox may have made it, in an earlier copy.
func makeDir(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is there and is no directory", errConflict, dir)
	}
	return false, err
}

// single unpacks the only file of an archive under another name.
func (u *unpacker) single(h *tar.Header, dest string) (err error) {
	if u.root, err = os.OpenRoot(filepath.Dir(dest)); err != nil {
		return err
	}
	defer func() { _ = u.root.Close() }()
	u.top, h.Name = "", filepath.Base(dest)
	return u.unpack(h)
}

// copyIn copies into a sandbox.
func (p *program) copyIn(ctx context.Context, source, ref, given string) error {
	return p.on(ctx, ref, func(where place, s *sandbox) error {
		to, err := look(ctx, where, s, given)
		if err != nil {
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
		owner, err := ownerOf(ctx, where, s)
		if err != nil {
			return err
		}
		line := p.progress()
		defer line.end()
		notes := p.leftOut(line)
		defer notes.end()
		return p.send(ctx, where, s, dir, func(w io.Writer) error {
			pack := &packer{out: tar.NewWriter(w), owner: owner, note: notes.add}
			var err error
			if source == "-" {
				err = pack.chown(p.stdin)
			} else {
				err = pack.pack(filepath.Clean(source), name)
			}
			if err != nil {
				return err
			}
			return pack.out.Close()
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
	content := source == "." || source == ".." || strings.HasSuffix(source, "/.") || filepath.Clean(source) == "/"
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
func (p *program) send(ctx context.Context, where place, s *sandbox, dir string, write func(io.Writer) error, line *progress) error {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() { // ends with the reader, at the latest
		err := write(w)
		_ = w.CloseWithError(err) // never fails
		wrote <- err
	}()
	err := where.CopyIn(ctx, s, dir, &counter{Reader: r, line: line, what: dir})
	_ = r.CloseWithError(errReaderGone) // never fails
	if failed := <-wrote; failed != nil && !errors.Is(failed, errReaderGone) {
		return failed // the reason of the other
	}
	return absent(err)
}

var errReaderGone = errors.New("nobody reads any more")

// ownerOf is the account that the commands of a sandbox run as. Its own list of
// accounts knows its ids, whether it runs or not; the list is root's.
func ownerOf(ctx context.Context, where place, s *sandbox) (account, error) {
	name, number, _ := strings.Cut(s.User, ":")
	uid, err := strconv.Atoi(number)
	if err != nil { // a local one: files belong to whoever makes them
		return account{}, nil
	}
	archive, err := where.CopyOut(ctx, s, "/etc/passwd")
	if errors.Is(err, fs.ErrNotExist) {
		return account{uid, uid}, nil
	}
	if err != nil {
		return account{}, err
	}
	defer func() { _ = archive.Close() }()
	in := tar.NewReader(archive)
	if h, err := in.Next(); err != nil || h.Typeflag != tar.TypeReg {
		return account{uid, uid}, err
	}
	lines := bufio.NewScanner(io.LimitReader(in, 1<<20))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		u, err1 := strconv.Atoi(fields[2])
		g, err2 := strconv.Atoi(fields[3])
		if err1 == nil && err2 == nil {
			return account{u, g}, nil
		}
	}
	return account{uid, uid}, lines.Err()
}

// counter says on the progress line how much was read.
type counter struct {
	io.Reader
	line *progress
	what string
	n    int64
}

// Read reads and counts.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	c.line.count("copying %s: %s", c.what, size(c.n))
	return n, err
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
