package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/tail"
)

const (
	// startTime bounds a server's start: launchers such as uvx and npx download
	// the program first.
	startTime = 60 * time.Second
	// stopTime is the time for a server to end after its standard input did,
	// and again after a signal. Both fit into the time that a shutdown leaves
	// to engines.
	stopTime = 400 * time.Millisecond
	// drainTime bounds the reading of output after a server's end, because a
	// child of it may keep the pipe open.
	drainTime = 300 * time.Millisecond
	// endTime is how long a server may run after it closed its output.
	endTime = time.Second
	// handshake is the newest protocol revision that begins with initialize.
	// The next one begins with a request that older servers do not know, and
	// some of them end on it; newer servers know both.
	handshake = "2025-11-25"
)

// process is one run of a server. It owns three goroutines: one starts it and
// waits for its end, one does the handshake, and one, the library's, reads its
// output. The end of the process ends all three; stop waits for it.
type process struct {
	spec   Server
	cfg    *Config
	mark   string // of the process and its descendants
	cmd    *exec.Cmd
	tree   *proc.Tree
	pipe   *pipe
	stderr *tail.Buffer

	launched chan struct{} // closed when the program runs or failed to start

	ready   chan struct{} // closed when the two below are set
	session *sdk.ClientSession
	err     error // why it did not start

	begun  time.Time
	broken chan struct{} // closed when the pipe is no longer used
	breaks sync.Once
	losses sync.Once
	over   chan struct{} // closed when no process is left, or none was started

	running  sync.WaitGroup
	stopping atomic.Bool
	reason   error // why we ended it, without secrets; the tree guards it until over
}

// start starts a server and returns at once.
func start(cfg *Config, spec Server) *process {
	p := &process{spec: spec, stderr: newTail(spec.Env), cfg: cfg, mark: proc.NewMark(), launched: make(chan struct{}), ready: make(chan struct{}), broken: make(chan struct{}), over: make(chan struct{}), begun: time.Now()}
	p.running.Go(p.run)
	return p
}

// run starts the program, which may take a while, and waits for its end.
func (p *process) run() {
	p.err = p.launch()
	close(p.launched)
	if p.err != nil {
		close(p.ready)
		close(p.over)
		return
	}
	p.running.Go(p.greet)
	p.wait()
}

// launch starts the program.
func (p *process) launch() error {
	env := proc.Environ(p.cfg.Env, p.spec.Env)
	program, err := lookPath(p.cfg, p.spec.Command, env)
	if err != nil {
		return err
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirIn.Close() }()
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		_ = ourOut.Close()
		return err
	}
	defer func() { _ = theirOut.Close() }()
	// No context: one that ends must not end the server.
	p.cmd = exec.Command(program, p.spec.Args...) //nolint:noctx // see above
	p.cmd.Args[0] = p.spec.Command
	p.cmd.Dir, p.cmd.Env = p.cfg.Dir, append(env, p.mark)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirIn, theirOut, p.stderr
	p.cmd.WaitDelay = drainTime
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.cfg.User.Credential()}
	if err := proc.Start(p.cmd); err != nil {
		_, _ = ourIn.Close(), ourOut.Close()
		return err
	}
	p.tree = proc.NewTree(p.cmd.Process.Pid)
	p.pipe = newPipe(ourIn, ourOut, func(text string) string { return mask(text, p.spec.Env) }, p.fault, p.lost)
	return nil
}

// lookPath finds a program in the directories of env's PATH, with the user's
// rights.
func lookPath(cfg *Config, program string, env []string) (found string, err error) {
	err = cfg.User.Do(func() error {
		if strings.Contains(program, "/") {
			if found = program; !filepath.IsAbs(program) {
				found = filepath.Join(cfg.Dir, program)
			}
			if !proc.IsExecutable(found) {
				return fmt.Errorf("%s is not an executable file", found)
			}
			return nil
		}
		path := proc.EnvPath(env, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		if found = proc.LookPath(program, path); found == "" {
			return fmt.Errorf("the program %q does not exist: install it, or give its path (PATH is %s)", program, path)
		}
		return nil
	})
	return found, err
}

// greet does the handshake with the server.
func (p *process) greet() {
	defer close(p.ready)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "actiond", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // none: no person can be asked
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	session, err := client.Connect(ctx, p.pipe, &sdk.ClientSessionOptions{ProtocolVersion: handshake})
	if err == nil {
		p.session = session
		return
	}
	err = errors.New(mask(err.Error(), p.spec.Env))
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not answer initialize within %v", startTime)
	}
	p.abort(err)
	<-p.over
	if p.err = p.failure(); p.pipe.greeted.Load() { // its end follows from ours
		p.err = &failure{server: p.spec.Name, reason: err.Error(), stderr: lastWords(p.stderr, p.spec.Env)}
	}
}

// fault ends the server because of an error of the pipe. If the server closed
// its output, it is about to end, and its exit status says more.
func (p *process) fault(reason error) {
	p.breaks.Do(func() { close(p.broken) })
	if errors.Is(reason, errOutputEnded) {
		channel.ClosedWithin(p.over, endTime)
	}
	p.abort(reason)
}

// lost logs the first message that cannot be decoded, and not its text.
func (p *process) lost(size int) {
	p.losses.Do(func() {
		p.cfg.Logger.Warn("a message of an MCP server cannot be decoded; such messages are dropped", slog.String("server", p.spec.Name),
			slog.Int("bytes", size))
	})
}

// abort ends the server. The first reason counts.
func (p *process) abort(reason error) {
	p.tree.Do(func(pid int) {
		if p.reason == nil {
			p.reason = reason
		}
		proc.KillTree(pid)
	})
}

// wait waits for the end of the process, and then ends the rest of its session,
// and processes that left the session, such as browsers.
func (p *process) wait() {
	p.tree.Await()
	stopping := p.stopping.Load()
	proc.KillMarked(p.mark, p.cfg.User)
	_ = p.pipe.in.SetReadDeadline(time.Now().Add(drainTime)) // the pipe may hold an answer
	_ = p.cmd.Wait()                                         // ProcessState has the result
	close(p.over)
	if !stopping {
		p.cfg.Logger.Warn("an MCP server ended", slog.String("server", p.spec.Name),
			slog.String("state", p.cmd.ProcessState.String()))
	}
	<-p.ready
	if p.session != nil {
		_ = p.session.Wait() // it reads up to the end, or the deadline
	}
	_ = p.pipe.Close()
}

// stop asks the server to end, kills it if necessary, and returns after its
// end.
func (p *process) stop() {
	defer p.running.Wait()
	p.stopping.Store(true)
	<-p.launched
	if p.pipe != nil {
		_ = p.pipe.out.Close()
	}
	for _, end := range []func(pid int){func(pid int) { _ = unix.Kill(-pid, unix.SIGTERM) }, proc.KillTree} {
		if channel.ClosedWithin(p.over, stopTime) {
			return
		}
		p.tree.Do(end)
	}
	<-p.over
}

// served reports whether the server ever became ready.
func (p *process) served() bool { return channel.Closed(p.ready) && p.session != nil }

// gone reports whether the process has ended.
func (p *process) gone() bool { return channel.Closed(p.over) }

// failure returns why the server ended, with the end of its output.
func (p *process) failure() error {
	reason := p.reason
	if state := p.cmd.ProcessState; reason == nil || state != nil && state.Exited() {
		reason = fmt.Errorf("it ended with %v", state)
	}
	return &failure{server: p.spec.Name, reason: reason.Error(), stderr: lastWords(p.stderr, p.spec.Env)}
}

// failure is the reason why a server failed. Its text is for the operator and
// not for a log: the output of a program may contain anything.
type failure struct{ server, reason, stderr string }

func (f *failure) Error() string {
	text := fmt.Sprintf("MCP server %q: %s", f.server, f.reason)
	if f.stderr != "" {
		text += "\nThe end of its standard error:\n" + f.stderr
	}
	return text
}
