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

	"github.com/actiond/actiond/executor/lookpath"
	"github.com/actiond/actiond/executor/proctree"
	"github.com/actiond/actiond/executor/spawn"
	"github.com/actiond/actiond/executor/tail"
)

const (
	// startTime bounds a server's start: launchers such as uvx and npx fetch
	// the program first.
	startTime = 60 * time.Second
	// stopTime is how long a server has to end once its standard input did, and
	// again after a signal. Both fit into what a shutdown leaves to engines.
	stopTime = 400 * time.Millisecond
	// drainTime is how long what a server wrote before its death is read for,
	// where a child of it keeps the pipe open.
	drainTime = 300 * time.Millisecond
	// endTime is how long a server may live on without an output.
	endTime = time.Second
	// handshake is the newest revision that begins with initialize. The next
	// one begins with a request that older servers do not know, and some of
	// these end on it; newer ones know both.
	handshake = "2025-11-25"
)

// process is one start of a server. It owns three goroutines: one starts it and
// shakes hands, one waits for its end, and one, the library's, reads what it
// says. The end of the process ends all; stop waits for it.
type process struct {
	spec   Server
	cfg    *Config
	mark   string // of it and of all that it starts
	cmd    *exec.Cmd
	tree   *proctree.Tree
	pipe   *pipe
	stderr *tail.Buffer

	ready   chan struct{} // closed once the two below hold
	session *sdk.ClientSession
	err     error // why it did not start

	begun  time.Time
	broken chan struct{} // closed once nothing more is said to it or heard of it
	breaks sync.Once
	over   chan struct{} // closed once nothing of it is left; also where nothing was started

	running  sync.WaitGroup
	stopping atomic.Bool
	reason   error // why we ended it, without secrets; the tree guards it until over
}

// start starts a server and returns at once.
func start(cfg *Config, spec Server) *process {
	p := &process{spec: spec, stderr: newTail(spec.Env), cfg: cfg, mark: proctree.NewMark(), ready: make(chan struct{}), broken: make(chan struct{}), over: make(chan struct{}), begun: time.Now()}
	if p.err = p.launch(); p.err != nil {
		close(p.ready)
		close(p.over)
		return p
	}
	p.running.Go(p.greet)
	p.running.Go(p.wait)
	return p
}

// launch starts the program.
func (p *process) launch() error {
	env := environment(p.cfg.Env, p.spec.Env)
	program, err := lookPath(p.spec.Command, p.cfg.Dir, env)
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
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.cfg.User}
	if err := spawn.Start(p.cmd); err != nil {
		_, _ = ourIn.Close(), ourOut.Close()
		return err
	}
	p.tree = proctree.New(p.cmd.Process.Pid)
	p.pipe = newPipe(ourIn, ourOut, func(text string) string { return mask(text, p.spec.Env) }, p.fault)
	proctree.Offer(p.cmd.Process.Pid, p.cfg.As)
	return nil
}

// environment is base with the variables of a server over it.
func environment(base []string, own map[string]string) []string {
	var env []string
	for _, v := range base {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := own[name]; !ok {
			env = append(env, v)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// lookPath finds a program in the directories of env's PATH.
func lookPath(program, dir string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		if !lookpath.Executable(program) {
			return "", fmt.Errorf("%s is no program that can be run", program)
		}
		return program, nil
	}
	path := lookpath.Of(env, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	if file := lookpath.Find(program, path); file != "" {
		return file, nil
	}
	return "", fmt.Errorf("the program %q is not there: install it, or give its path (PATH is %s)", program, path)
}

// greet shakes hands with the server.
func (p *process) greet() {
	defer close(p.ready)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "actiond", Version: "1"}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{}, // none: there is nobody here to ask
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
	p.err = p.failure()
}

// fault ends the server for what came over the pipe. One whose output ended is
// about to end, and how says more.
func (p *process) fault(reason error) {
	p.breaks.Do(func() { close(p.broken) })
	if errors.Is(reason, errOutputEnded) {
		select {
		case <-p.over:
		case <-time.After(endTime):
		}
	}
	p.abort(reason)
}

// abort ends the server; the first reason counts.
func (p *process) abort(reason error) {
	p.tree.Do(func(pid int) {
		if p.reason == nil {
			p.reason = reason
		}
		proctree.Kill(pid)
	})
}

// user is whose rights the server has.
func (p *process) user() int {
	if p.cfg.User != nil {
		return int(p.cfg.User.Uid)
	}
	return os.Geteuid()
}

// wait waits for the process's end, and ends the rest of it: what is of its
// session, and what left that, as browsers do that servers start.
func (p *process) wait() {
	p.tree.Await()
	stopping := p.stopping.Load()
	proctree.KillMarked(p.mark, p.user(), p.cfg.As)
	_ = p.pipe.in.SetReadDeadline(time.Now().Add(drainTime)) // what is still in the pipe is an answer to somebody
	_ = p.cmd.Wait()                                         // how it ended is asked of ProcessState
	close(p.over)
	if !stopping {
		p.cfg.Logger.Warn("an MCP server ended", slog.String("server", p.spec.Name), slog.String("state", p.cmd.ProcessState.String()))
	}
	<-p.ready
	if p.session != nil {
		_ = p.session.Wait() // it reads up to the end, or the deadline
	}
	_ = p.pipe.Close()
}

// stop ends the server, kindly at first, and returns when it is gone.
func (p *process) stop() {
	defer p.running.Wait()
	p.stopping.Store(true)
	if p.pipe != nil {
		_ = p.pipe.out.Close()
	}
	for _, end := range []func(pid int){func(pid int) { _ = unix.Kill(-pid, unix.SIGTERM) }, proctree.Kill} {
		select {
		case <-p.over:
			return
		case <-time.After(stopTime):
		}
		p.tree.Do(end)
	}
	<-p.over
}

// served tells whether the server was ready once.
func (p *process) served() bool {
	select {
	case <-p.ready:
		return p.session != nil
	default:
		return false
	}
}

// gone tells whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// failure says why the server is not there any more, and with which last words.
func (p *process) failure() error {
	reason := p.reason
	if state := p.cmd.ProcessState; reason == nil || state != nil && state.Exited() {
		reason = fmt.Errorf("it ended with %v", state)
	}
	return &failure{server: p.spec.Name, reason: reason.Error(), stderr: lastWords(p.stderr, p.spec.Env)}
}

// failure says what became of a server. Its text is for whoever configured it,
// and not for a log: the last words of a program may hold anything.
type failure struct{ server, reason, stderr string }

func (f *failure) Error() string {
	text := fmt.Sprintf("MCP server %q: %s", f.server, f.reason)
	if f.stderr != "" {
		text += "\nThe end of its standard error:\n" + f.stderr
	}
	return text
}
