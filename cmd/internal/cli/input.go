package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/local"
)

// spool has the bytes of standard input, in a file without a name. A sandbox is
// given it whole: an upload that waits for more is cut off after a while.
type spool struct{ file *os.File }

// spool reads standard input to its end where it is the command's and that runs in a
// session, and nil where not.
func (p *program) spool(cmd *cobra.Command, opts execFlags) (*spool, error) {
	_, typed := output.Terminal(p.Stdin)
	switch {
	case opts.tty && opts.session != "":
		return nil, command.Usage(cmd, fmt.Errorf("--tty: the session has a terminal already; to type into it use 'runtimectl sh --session %s'", opts.session))
	case opts.detach && opts.feed:
		return nil, command.Usage(cmd, errors.New("--detach: a command that is not waited for gets no --interactive"))
	case opts.detach && opts.session != "" && opts.timeout > 0:
		return nil, command.Usage(cmd, errors.New("--detach: nothing would end a session's command after --timeout; leave out one of them"))
	case opts.tty && opts.feed && !typed:
		return nil, command.Usage(cmd, errors.New("the input is not a terminal: run this in one, or leave out --tty"))
	case !opts.feed || opts.session == "":
		return nil, nil //nolint:nilnil // there is none
	case typed:
		return nil, command.Usage(cmd, errors.New("--interactive: standard input is a terminal; to type into a sandbox use 'runtimectl sh'"))
	}
	file, err := os.CreateTemp("", "runtimectl-")
	if err != nil {
		return nil, fmt.Errorf("keeping standard input: %w", err)
	}
	s := &spool{file}
	if err := os.Remove(file.Name()); err != nil {
		s.close()
		return nil, fmt.Errorf("keeping standard input: %w", err)
	}
	read := make(chan error, 1)
	go func() { // after an interrupt it is not waited for: a read cannot be ended, and this program ends
		_, err := io.Copy(file, p.Stdin)
		read <- err
	}()
	select {
	case err = <-read:
	case <-cmd.Context().Done():
		return nil, &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	return s, nil
}

func (s *spool) close() {
	if s != nil {
		_ = s.file.Close() // it was only read from since
	}
}

// inputName is the file's name in its directory in the sandbox.
const inputName = "input"

// send puts it into a directory of its own in the sandbox, which only the
// commands' user can open: /tmp is everybody's. The command removes both.
func (s *spool) send(ctx context.Context, c *client.Client, dir string) error {
	err := helper(ctx, c, "mkdir", "-m", "700", "--", dir)
	if err == nil {
		if _, err = c.Upload(ctx, dir, inputName, s.file, false); err != nil {
			_ = helper(context.WithoutCancel(ctx), c, "rm", "-rf", "--", dir) // the upload's error is the one to tell
		}
	}
	if err != nil {
		return fmt.Errorf("putting standard input into the sandbox: %w", err)
	}
	return nil
}

// helper runs a program of ours that is done at once.
func helper(ctx context.Context, c *client.Client, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, local.StopTime)
	defer cancel()
	o, err := c.Do(ctx, api.Request{Action: api.ExecAction{Argv: words}})
	if err != nil {
		return err
	}
	if ended, ok := o.(api.ExecObservation); !ok || ended.ExitCode == nil || *ended.ExitCode != 0 {
		return errors.New(output.Clean(api.Content(o)))
	}
	return nil
}
