package notebook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/executor/internal/keeper"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// MaxKernels bounds the kernels of a sandbox; each takes about 60 MiB.
	MaxKernels = 8
	// maxSessions bounds the sessions that are known, most of them by the end of
	// their kernels alone, which their next cells will be told.
	maxSessions = 64
	// DefaultIdleTime is how long a kernel may do nothing before it is stopped.
	DefaultIdleTime = time.Hour
	// After a timeout the kernel is interrupted, and again each interruptTime,
	// until graceTime is over and it is killed. The reference's clients wait five
	// seconds longer than the timeout that they send.
	interruptTime = time.Second
	graceTime     = 3 * time.Second
)

// Errors of Run beside those of ctx. ErrAbsent is wrapped with the programs that
// were tried, and ErrNotBegun with the error of Begin.
var (
	ErrNotBegun = errors.New("the cell was not begun")
	ErrAbsent   = errors.New("no Python with ipykernel")
	ErrClosed   = keeper.ErrClosed
	ErrBusy     = keeper.ErrBusy
	ErrMany     = keeper.ErrMany
)

// Config says how kernels are run. The zero value runs them as this process.
type Config struct {
	// Env is the environment of the kernels; interpreters are looked for on its PATH.
	Env []string
	// User runs the kernels; nil means the user of this process.
	User *identity.User
	// Programs are the interpreters to try; nil means those found in the image.
	Programs []string
	// Init is a cell that each kernel runs first. Its output is lost.
	Init string
	// IdleTime is how long a kernel may do nothing before it is stopped; 0 means
	// DefaultIdleTime.
	IdleTime time.Duration
}

// Cell is code to run.
type Cell struct {
	Code string
	// Dir is where the shell is. The kernel goes there first if it is another
	// directory than that of the cell before, or the one it was in is gone.
	Dir string
	// Timeout bounds the wait for the turn, the start of a kernel and the run, all
	// together; negative means none.
	Timeout time.Duration
	// Cancelled is closed to interrupt the cell; nil never is.
	Cancelled <-chan struct{}
	// Queue is called before the wait for the turn and for the kernel, and Begin before
	// the cell runs, perhaps after Run has returned because ctx ended. Where Begin returns an
	// error, the cell does not run and Run fails with it. nil calls nothing.
	Queue func()
	Begin func() error

	follower *follower // of Stream, nil without one
}

// Result is the result of a cell.
type Result struct {
	// Text has the printed output, results and tracebacks, in the order of arrival, without
	// colours; of more than a mebibyte the beginning and the end.
	Text string
	// Images are data URLs of the PNG images shown; nil when there were none.
	Images []string
	// Raised says that an exception ended the cell.
	Raised bool
	// Python is the path of the interpreter.
	Python string
	// TimedOut says that the cell was interrupted, or with Ended killed, because
	// of its Timeout.
	TimedOut bool
	// Interrupted says the same of Cancelled.
	Interrupted bool
	// Starting says that the cell did not run, because the kernel was not ready
	// within its Timeout. The start goes on.
	Starting bool
	// Ended says how the kernel ended during the cell, "" where it did not.
	Ended string
	// Lost says how the kernel of the session's last cell ended, if it did so after
	// that cell and this one ran in a new kernel; "" otherwise.
	Lost string
	// InitFailed says why the kernel's Init failed. Only the first cell of a kernel
	// has it.
	InitFailed string
}

// Notebook keeps one kernel for each session. Its methods may be called
// concurrently: cells of one session wait for each other, others do not. It owns
// the kernels; Close ends them.
type Notebook struct {
	cfg     Config
	kernels *keeper.Keeper[*kernel]

	mu     sync.Mutex
	python string // that had ipykernel
	tried  string // the last one that was started
}

// State says how a kernel is.
type State int

// The states of a kernel. The next cell of the session reports the end of an ended
// one, and starts another.
const (
	Idle State = iota
	Busy       // a cell runs, or the kernel starts to run one
	Ended
)

// Info says how the kernel of a session is.
type Info struct {
	Session string
	State   State
	// Since is when it came into its state.
	Since time.Time
	// Python is the interpreter's path, and PID its process; zero where none runs.
	Python string
	PID    int
}

// New returns a notebook without kernels. It starts nothing.
func New(cfg Config) *Notebook {
	idle := cmp.Or(cfg.IdleTime, DefaultIdleTime)
	n := &Notebook{cfg: cfg}
	n.kernels = keeper.New(keeper.Config[*kernel]{
		Start: n.start, Check: (*kernel).check, Ended: (*kernel).over, Stop: (*kernel).stop, Env: cfg.Env,
		Max: MaxKernels, MaxNames: maxSessions,
		IdleTime: idle, IdleText: fmt.Sprintf("was stopped after %v without a cell", idle),
	})
	return n
}

// SetEnv sets the environment of the kernels that are started from now on.
func (n *Notebook) SetEnv(env []string) { n.kernels.SetEnv(env) }

// Run runs a cell in the kernel of that session, starting one if need be. ctx
// bounds the wait: a cell that has begun goes on without its caller, and its
// output is lost then. Nothing was run where the error is one of this package's;
// ErrAbsent and a kernel that does not start come with their reasons.
func (n *Notebook) Run(ctx context.Context, name string, c Cell) (Result, error) {
	begun := time.Now()
	var result Result
	if c.Queue != nil {
		c.Queue()
	}
	var refused error
	err := n.kernels.Use(ctx, name, c.Timeout, func(t *keeper.Turn[*kernel]) {
		if c.Begin != nil {
			if refused = c.Begin(); refused != nil {
				return
			}
		}
		if c.Timeout >= 0 {
			c.Timeout = max(0, c.Timeout-time.Since(begun))
		}
		result = t.Value.take(c)
		if result.Lost = t.Lost; result.Ended != "" {
			t.End(result.Ended)
		}
	})
	switch {
	case errors.Is(err, keeper.ErrStarting):
		n.mu.Lock()
		defer n.mu.Unlock()
		return Result{Python: n.tried, TimedOut: true, Starting: true}, nil
	case err != nil:
		return Result{}, err
	case refused != nil:
		return Result{}, fmt.Errorf("%w: %w", ErrNotBegun, refused)
	}
	return result, nil
}

// Sessions lists the kernels that run, and those whose end the next cell will
// report, by the names of their sessions.
func (n *Notebook) Sessions() []Info {
	var list []Info
	for _, s := range n.kernels.List() {
		i := Info{Session: s.Name, State: Idle, Since: s.Since}
		alive := s.Live && !s.Value.over()
		switch {
		case s.Busy:
			i.State = Busy
		case !s.Live:
			i.State = Ended
		case !alive:
			i.State, i.Since = Ended, s.Value.died
		}
		if alive {
			i.Python, i.PID = s.Value.python, s.Value.process.Pid
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Session, b.Session) })
	return list
}

// start starts a kernel in the first interpreter that has ipykernel. ctx ends the
// wait for it.
func (n *Notebook) start(ctx context.Context, _ string, env []string) (*kernel, error) {
	cfg := n.cfg
	cfg.Env = env
	var tried []string
	broken := false // there is an ipykernel
	for _, program := range n.programs(&cfg) {
		n.mu.Lock()
		n.tried = program
		n.mu.Unlock()
		k, err := startKernel(ctx, &cfg, program)
		switch {
		case err == nil:
			n.mu.Lock()
			n.python = program
			n.mu.Unlock()
			return k, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		broken = broken || !errors.As(err, new(*absentError))
		tried = append(tried, err.Error())
	}
	switch {
	case broken:
		return nil, errors.New(strings.Join(tried, "; "))
	case tried == nil:
		tried = []string{"there is no python3"}
	}
	return nil, fmt.Errorf("%w: %s", ErrAbsent, strings.Join(tried, "; "))
}

// programs lists the interpreters to try, the one that had ipykernel first.
func (n *Notebook) programs(cfg *Config) []string {
	programs := cfg.candidates()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.python != "" {
		others := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { return p == n.python })
		programs = append([]string{n.python}, others...)
	}
	return programs
}

func (c *Config) candidates() (programs []string) {
	if c.Programs != nil {
		return c.Programs
	}
	_ = c.User.Do(func() error {
		programs = candidates(c.Env)
		return nil
	})
	return programs
}

// Python returns the interpreter that has run a kernel, or that seems to have
// ipykernel; "" if it cannot be seen. It starts nothing.
func (n *Notebook) Python() (found string) {
	n.mu.Lock()
	found = n.python
	n.mu.Unlock()
	if found != "" {
		return found
	}
	cfg := n.cfg
	cfg.Env = n.kernels.Env()
	programs := cfg.candidates()
	_ = cfg.User.Do(func() error {
		for _, program := range programs {
			if found == "" && installed(program) {
				found = program
			}
		}
		return nil
	})
	return found
}

// CloseSession ends the kernel of that session; false if it has none. A
// cell that runs is answered with its kernel's end.
func (n *Notebook) CloseSession(name string) bool { return n.kernels.CloseSession(name) }

// Close ends all kernels and returns when nothing of them is left.
func (n *Notebook) Close() { n.kernels.Close() }
