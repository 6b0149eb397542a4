package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/keys"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) sh() *cobra.Command {
	opts := shFlags{keys: "ctrl-p,ctrl-q"}
	c := &cobra.Command{
		Use:   "sh [flags] SANDBOX",
		Short: "Look at a session's terminal, and type into it",
		Long: `Sh attaches your terminal to a persistent shell of a sandbox: by default the one
that agents use if they name none. You see what was there before, what an agent
does while it does it, and what you type goes to the command that runs, or at the
prompt becomes the session's next command. The session's terminal takes the size
of yours while you are there.

Ctrl-P Ctrl-Q, 'exit' and Ctrl-D at the prompt leave, and end nothing; with
--read-only it is the first of them alone. What the sandbox prints reaches your
terminal as it is, with all its escape sequences.`,
		Example: `  runtimectl sh build
  runtimectl sh --read-only build
  runtimectl sh --session mine --detach-keys ctrl-] build`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	flags := c.Flags()
	flags.StringVar(&opts.session, "session", "",
		"attach to the persistent shell `NAME`, which is started if need be\n(default: the one of actions that name none)")
	flags.BoolVar(&opts.readOnly, "read-only", false, "only look")
	flags.StringVar(&opts.keys, "detach-keys", opts.keys, "leave when these `KEYS` are typed, such as ctrl-a,d")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		leave, err := keys.Parse(opts.keys)
		if err != nil {
			return command.Usage(cmd, fmt.Errorf("--detach-keys: %w", err))
		}
		in, isIn := output.Terminal(p.Stdin)
		out, isOut := output.Terminal(p.Stdout)
		if !isIn || !isOut {
			return command.Usage(cmd, errors.New("sh is for a terminal: without one, use exec"))
		}
		return p.On(cmd.Context(), args[0], func(_ sandbox.Driver, s *sandbox.Sandbox) error {
			c, err := platform.Client(s)
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = fmt.Fprintf(p.Stderr, "note: %s leaves, and ends nothing\n", strings.Join(strings.Split(opts.keys, ","), " "))
			if err := p.attach(cmd.Context(), c, s.Name, opts, leave, in, out); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(p.Stderr, "left sandbox %s; 'runtimectl sh %s' comes back\n", s.Name,
				strings.Join(cmd.Flags().Args(), " "))
			return nil
		})
	}
	return c
}

// shFlags choose the session, and how it is attached to.
type shFlags struct {
	session, keys string
	readOnly      bool
}

// attach connects a terminal of this machine with one of a session until either
// side ends it. The terminal is as it was then.
func (p *program) attach(
	ctx context.Context, c *client.Client, name string, opts shFlags, leave []byte, in, out *os.File,
) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remote, err := c.NamedTerminal(ctx, opts.session, name, opts.readOnly)
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }() // the session lives on in any case
	terminal := &ownTerminal{in: in, out: out, size: &windowSize{}, leave: leave}
	to := io.Discard
	if !opts.readOnly {
		to, terminal.size = remote, &windowSize{out: out, resize: remote.Resize}
	}
	p.terminal.Store(terminal)
	defer func() { err = errors.Join(err, terminal.disconnect(true)) }()
	typed, err := terminal.connect(ctx)
	if err != nil {
		return err
	}
	go func() { // ends with the program: a read of a terminal cannot be given up
		defer terminal.restoreInPanic()
		_, err := io.Copy(to, typed)
		cancel(cmp.Or(err, io.EOF)) // EOF: the terminal is gone
	}()
	_, err = io.Copy(out, remote)
	if errors.Is(context.Cause(ctx), errLeft) {
		return nil
	}
	return err
}
