package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/actiond/actiond/api/client"
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
		Args:              takes(1, 1),
		ValidArgsFunction: p.completeSandboxes(1, running...),
	}
	flags := c.Flags()
	flags.StringVar(&opts.session, "session", "", "attach to the persistent shell `NAME`, which is started if need be\n(default: the one of actions that name none)")
	flags.BoolVar(&opts.readOnly, "read-only", false, "only look")
	flags.StringVar(&opts.keys, "detach-keys", opts.keys, "leave when these `KEYS` are typed, such as ctrl-a,d")
	p.addPlace(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := parseKeys(opts.keys)
		if err != nil {
			return &usageError{cmd.CommandPath(), fmt.Errorf("--detach-keys: %w", err)}
		}
		in, out, err := p.terminals()
		if err != nil {
			return err
		}
		return p.on(cmd.Context(), args[0], func(_ place, s *sandbox) error {
			c, err := s.client()
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = fmt.Fprintf(p.stderr, "note: %s leaves, and ends nothing\n", strings.Join(strings.Split(opts.keys, ","), " "))
			return attach(cmd.Context(), c, opts, keys, in, out)
		})
	}
	return c
}

// shFlags say what is attached to.
type shFlags struct {
	session, keys string
	readOnly      bool
}

// terminals are standard input and output, if they are a terminal.
func (p *program) terminals() (in, out *os.File, err error) {
	in, isIn := p.stdin.(*os.File)
	out, isOut := p.stdout.(*os.File)
	if !isIn || !isOut || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, nil, errors.New("sh is for a terminal: without one, use exec")
	}
	return in, out, nil
}

// errLeft ends an attachment whose keys were typed.
var errLeft = errors.New("left")

// attach connects a terminal of this machine with one of a session until either
// side ends it. The terminal is as it was then.
func attach(ctx context.Context, c *client.Client, opts shFlags, keys []byte, in, out *os.File) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remote, err := c.Terminal(ctx, opts.session, opts.readOnly)
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }() // the session lives on in any case
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("making the terminal raw: %w", err)
	}
	defer func() {
		_, _ = io.WriteString(out, resetTerminal)
		err = errors.Join(err, term.Restore(int(in.Fd()), before))
	}()
	if !opts.readOnly {
		stop := followSize(ctx, remote, out)
		defer stop()
	}
	go func() { // ends with the program: a read of a terminal cannot be given up
		cancel(typeInto(remote, keys, in, opts.readOnly))
	}()
	_, err = io.Copy(out, remote)
	if errors.Is(context.Cause(ctx), errLeft) {
		return nil
	}
	return err
}

// resetTerminal ends what a program in the sandbox may have begun: colours, the
// other screen, a hidden cursor, reports of the mouse, marks around what is
// pasted, other codes for keys.
const resetTerminal = "\x1b[0m\x1b[?47l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?2004l\x1b[?1l\x1b>\r\n"

// typeInto types what comes from in until the keys come.
func typeInto(remote io.Writer, keys []byte, in io.Reader, readOnly bool) error {
	d := detector{keys: keys}
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		typed, found := d.pass(buffer[:n])
		if len(typed) > 0 && !readOnly {
			if _, err := remote.Write(typed); err != nil {
				return err
			}
		}
		switch {
		case found:
			return errLeft
		case err != nil: // the terminal is gone
			return fmt.Errorf("reading the terminal: %w", err)
		}
	}
}

// followSize tells the other side how large the terminal is, now and whenever
// that changes, until stop.
func followSize(ctx context.Context, remote *client.Terminal, out *os.File) (stop func()) {
	changed := make(chan os.Signal, 1)
	changed <- syscall.SIGWINCH // the size it has now
	signal.Notify(changed, syscall.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			if cols, rows, err := term.GetSize(int(out.Fd())); err == nil && rows > 0 && cols > 0 {
				_ = remote.Resize(rows, cols) // a connection that broke is noticed elsewhere
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		cancel()
		<-ended
	}
}
