package process

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/mark"
)

// defaultMax is how many programs run at a time.
const defaultMax = 256

// Errors of this package.
var (
	ErrMany   = errors.New("too many programs run already")
	ErrClosed = errors.New("the engine is closed")
)

// StartError says that a program could not be started.
type StartError struct {
	// Code is the exit code of a shell then: 127 where there is no such program, else 126.
	Code int
	// Reason is a sentence for people.
	Reason string
}

func (e *StartError) Error() string { return e.Reason }

// Config says how programs are started.
type Config struct {
	// Env is the environment, as os.Environ gives it.
	Env []string
	// User runs the programs; nil means the user of this process.
	User *identity.User
	// AnyUser says that programs may become other users, as root's can: their processes are
	// found by the mark, whatever their user.
	AnyUser bool
	// Marks records the mark of each program before it is started, until the program ends or [Process.Forget] is
	// called. nil records nothing.
	Marks *mark.Ledger
	// Max bounds the programs that run, together with those that have ended and left their
	// streams to another process; 0 means 256.
	Max int
}

// Command is a program to be started.
type Command struct {
	// Argv is the program, by its path or to be looked for on the PATH, and its
	// arguments.
	Argv []string
	// Dir is the absolute path of the directory that it begins in.
	Dir string
	// User runs the program in place of the engine's user, which is root then, with AnyUser; nil means
	// that one.
	User *identity.User
	// Env are variables over those of the engine, or with ClearEnv instead of them.
	// ACTIOND_TREE, by which the engine finds the processes of the program, comes in any case.
	Env      map[string]string
	ClearEnv bool
	// Input is the standard input; nil means that it is empty.
	Input []byte
	// Stream leaves the standard input to [Process.Write], until Leave. Input is nil then.
	Stream bool
	// Terminal gives the program a terminal for its output, and for its input where it
	// has one, instead of a pipe for each.
	Terminal *Size
	// KillAfter is how long the program and its descendants may run; 0 means no limit.
	KillAfter time.Duration
	// Output is called with the output of the program as it comes, one call after another,
	// the first one once the program runs. Data is valid during the call. The program waits for it,
	// as soon as a pipe is full. nil means no listener.
	Output func(Chunk)
}

// Size is that of a terminal.
type Size struct{ Rows, Cols uint16 }

// Engine starts programs. Its methods may be called concurrently.
type Engine struct {
	cfg   Config // without an environment
	drain time.Duration

	mu     sync.Mutex
	env    []string
	live   map[*Process]bool
	closed bool
}

// New returns an engine. The caller must call Close.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg, env: cfg.Env, live: map[*Process]bool{}, drain: drainTime}
	e.cfg.Env = nil
	if e.cfg.Max == 0 {
		e.cfg.Max = defaultMax
	}
	return e
}

// SetEnv replaces the environment of the programs that are yet to be started.
func (e *Engine) SetEnv(env []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.env = env
}

// admit counts p among the living, and returns their environment.
func (e *Engine) admit(p *Process) (env []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, ErrClosed
	case len(e.live) >= e.cfg.Max:
		return nil, ErrMany
	}
	e.live[p] = true
	return e.env, nil
}

// user is the one that runs the program.
func (p *Process) user() *identity.User {
	if p.command.User != nil {
		return p.command.User
	}
	return p.engine.cfg.User
}

// list returns the programs that run, and those that have ended and left their streams to
// another process.
func (e *Engine) list() []*Process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.live))
}

// users are those that descendants of programs may run as.
func (e *Engine) users() []*identity.User {
	if e.cfg.AnyUser {
		return proc.Users()
	}
	return []*identity.User{e.cfg.User}
}

func (e *Engine) forget(p *Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, p)
}

// Close ends all programs, with their descendants, and returns when they are gone, or
// cannot be killed.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	End(e.list())
}

// PIDs returns the process ids of the programs that run, and of those that have ended and left their
// streams to another process. until bounds the wait for those that are being started.
func (e *Engine) PIDs(until time.Time) (pids []int) {
	for _, p := range e.list() {
		if channel.ClosedWithin(p.launched, time.Until(until)) && p.tree != nil {
			pids = append(pids, p.PID())
		}
	}
	return pids
}

// End is Close for some programs.
func End(programs []*Process) {
	var ending sync.WaitGroup
	for _, p := range programs {
		ending.Go(p.close)
	}
	ending.Wait()
}

// close ends the program, its descendants and its goroutines.
func (p *Process) close() {
	if !channel.ClosedWithin(p.launched, closeTime) {
		return // a file system holds up the start
	}
	if p.tree == nil {
		return // it was not started
	}
	p.end(ByServer, closeGrace)
	p.closeOnce.Do(func() { close(p.closing) })
	channel.ClosedWithin(p.over, closeTime)
	for _, s := range p.sources {
		_ = s.file.SetReadDeadline(time.Now())
	}
	p.running.Wait()
}
