package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/cmd/internal/cli/transfer"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

func (p *program) edit() *cobra.Command {
	c := &cobra.Command{
		Use:   "edit SANDBOX PATH",
		Short: "Edit a file of a sandbox with your editor",
		Long: `Edit fetches a file of a sandbox, starts your editor on it, and puts it back with
the mode and owner it had. A file that is not there is made, and is the user's,
if you write something. The sandbox must run, and the file must be one of its
commands' user, with whose rights it is written.

When the file changed in the sandbox meanwhile, it stays as it is there, and what
you wrote is kept in a file of this machine, which is named.

The editor is $VISUAL, else $EDITOR, else vi. It may have arguments.`,
		Example: `  runtimectl edit build src/main.c
  EDITOR='code --wait' runtimectl edit build .bashrc`,
		Args:              command.ArgRange(2, 2),
		ValidArgsFunction: p.completeFile,
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.OnFiles(cmd.Context(), args[0], func(files sandbox.Files, s *sandbox.Sandbox) error {
			return p.editFile(cmd.Context(), files, s, args[1])
		})
	}
	return c
}

// mostEdited bounds the size of a file, which is held in memory.
const mostEdited = 64 << 20

// remoteFile is a file of a sandbox with the attributes that stay.
type remoteFile struct {
	path   string // the file that links lead to
	header *tar.Header
	data   []byte
	found  bool
}

// fetch reads a file, or reports that it does not exist.
func fetch(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string) (remoteFile, error) {
	at, err := transfer.Look(ctx, files, s, given)
	if err != nil {
		return remoteFile{}, err
	}
	f := remoteFile{path: at.Real}
	if err := at.HasDir(ctx, files, s); err != nil {
		return remoteFile{}, err
	}
	if !at.Found {
		f.header = &tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}
		return f, nil
	}
	err = transfer.ReadFile(ctx, files, s, at.Real, func(h *tar.Header, content io.Reader) error {
		if h.Size > mostEdited {
			return fmt.Errorf("it has %s, and %s are the most", output.Size(h.Size), output.Size(mostEdited))
		}
		var err error
		f.header, f.found = h, true
		f.data, err = io.ReadAll(io.LimitReader(content, mostEdited))
		return err
	})
	return f, err
}

// keepsOwner refuses a file of another user than the commands', whose it would become:
// the sandbox's server writes it with that user's rights.
func (f remoteFile) keepsOwner(ctx context.Context, s *sandbox.Sandbox) error {
	_, number, named := strings.Cut(s.User, ":")
	if !f.found || !named { // the files of a local sandbox are those of this machine
		return nil
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	status, err := agent.Agent{}.Status(ctx, s.Dial, key)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(number)
	if status.UserID != nil { // of an account of the image, whose id may be another
		uid, err = *status.UserID, nil
	}
	if err == nil && uid != f.header.Uid {
		err = command.Conflict("%s belongs to user %d, and edit writes as the commands' user %d: "+
			"change it with 'runtimectl exec --user root', in a sandbox created with --allow-root", f.path, f.header.Uid, uid)
	}
	return err
}

// put writes the file with other content.
func (f remoteFile) put(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, data []byte) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: path.Base(f.path), Size: int64(len(data)), Mode: f.header.Mode,
		ModTime: time.Now(), Format: tar.FormatPAX,
	}
	err := w.WriteHeader(h)
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("packing %s: %w", f.path, err)
	}
	return files.CopyIn(ctx, s, path.Dir(f.path), &archive)
}

// editFile makes the round trip.
func (p *program) editFile(ctx context.Context, files sandbox.Files, s *sandbox.Sandbox, given string) (err error) {
	if !platform.Serves(s) {
		return platform.NotRunning(s)
	}
	before, err := fetch(ctx, files, s, given)
	if err != nil {
		return err
	}
	if err := before.keepsOwner(ctx, s); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "runtimectl-edit-")
	if err != nil {
		return fmt.Errorf("making a directory for the file: %w", err)
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	copied := filepath.Join(dir, editName(path.Base(before.path)))
	if err := os.WriteFile(copied, before.data, 0o600); err != nil {
		return fmt.Errorf("writing the file for the editor: %w", err)
	}
	if err := p.startEditor(ctx, copied); err != nil {
		return err
	}
	data, err := os.ReadFile(copied)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the editor removed %s: nothing is changed", copied)
	case err != nil:
		return fmt.Errorf("reading what the editor wrote: %w", err)
	case bytes.Equal(data, before.data): // of a file that is not there too: nothing was written
		_, _ = fmt.Fprintln(p.Stderr, "note: nothing is changed")
		return nil
	}
	now, err := fetch(ctx, files, s, given)
	if err == nil && (now.path != before.path || now.found != before.found || !bytes.Equal(now.data, before.data)) {
		err = command.Conflict("%s changed in the sandbox meanwhile", before.path)
	}
	if err == nil {
		err = before.put(ctx, files, s, data)
	}
	if err != nil {
		keep = true
		return fmt.Errorf("%w; what you wrote is kept in %s", err, copied)
	}
	return nil
}

// editName is a name that can be a file's here, with the extension by which
// an editor knows its kind.
func editName(name string) string {
	name = filepath.Base(output.Clean(name))
	if name == "." || name == ".." || name == "/" {
		return "file"
	}
	return output.Cut(name, 100)
}

// startEditor starts the person's editor on a file and waits for it.
func (p *program) startEditor(ctx context.Context, file string) error {
	editor := cmp.Or(p.Getenv("VISUAL"), p.Getenv("EDITOR"), "vi")
	// By a shell, because the variable may hold arguments. Not bound by ctx: a
	// Ctrl-C on the terminal is the editor's.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", editor+` "$1"`, editor, file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Stdin, p.Stdout, p.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %s: %w: nothing is changed", editor, err)
	}
	return nil
}
