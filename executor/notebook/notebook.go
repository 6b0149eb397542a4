package notebook

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
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

// Errors of Run beside those of ctx. ErrAbsent is wrapped with what was tried.
var (
	ErrClosed = errors.New("the session was closed")
	ErrAbsent = errors.New("no Python with ipykernel")
	ErrBusy   = errors.New("another cell of this session still runs")
	ErrMany   = errors.New("too many kernels")
)

// Config says how kernels are run. The zero value runs them as this process.
type Config struct {
	// Env is the environment of the kernels; interpreters are looked for on its PATH.
	Env []string
	// User is whose rights kernels have; nil means those of this process.
	User *syscall.Credential
	// As does work with the rights of User on files; nil calls it as it is.
	As func(work func() error) error
	// Programs are the interpreters to try; nil means those found in the image.
	Programs []string
	// Init is a cell that each kernel runs first; what it prints or raises is lost.
	Init string
	// IdleTime is how long a kernel may do nothing before it is stopped; 0 means
	// DefaultIdleTime.
	IdleTime time.Duration
}

// Cell is what is to be run.
type Cell struct {
	Code string
	// Dir is where the shell is. The kernel goes there first if it is another
	// directory than that of the cell before, or the one it was in is gone.
	Dir string
	// Timeout bounds the wait for the turn, and then the run; negative means none.
	Timeout time.Duration
}

// Result is what came of a cell.
type Result struct {
	// Text is what was printed, shown and raised, in the order of arrival, without
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
	// Ended says how the kernel ended during the cell, "" where it did not.
	Ended string
	// Lost says what became of the kernel that ran the session's last cell, where
	// that happened after the cell and this one ran in a new kernel; "" otherwise.
	Lost string
}

// Notebook keeps one kernel for each session. Its methods may be called
// concurrently: cells of one session wait for each other, others do not.
//
// It owns the kernels, a goroutine for each cell that runs, and a timer for each
// idle kernel; Close ends all of them.
type Notebook struct {
	running sync.WaitGroup

	mu       sync.Mutex
	cfg      Config
	sessions map[string]*session
	closed   bool
	python   string // that had ipykernel
}

// session is a place for a kernel.
type session struct {
	name   string
	turn   chan struct{} // holds a token while nobody runs a cell
	closed chan struct{}

	// mu of the Notebook guards these.
	users int // calls of Run and stopIdle
	busy  bool
	since time.Time // it is busy, or is not

	// Whoever has the turn may change these; mu of the Notebook guards the first two
	// too.
	kernel *kernel
	lost   string // what became of a kernel, which nobody was told
	dir    string // of the last cell
	cells  int    // that were run
	idle   *time.Timer
}

// State says how a kernel is.
type State int

// The states of a kernel. An ended one is told of by the session's next cell,
// which starts another.
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
	if cfg.As == nil {
		cfg.As = func(work func() error) error { return work() }
	}
	if cfg.IdleTime == 0 {
		cfg.IdleTime = DefaultIdleTime
	}
	return &Notebook{cfg: cfg, sessions: map[string]*session{}}
}

// SetEnv sets the environment of the kernels that are started from now on.
func (n *Notebook) SetEnv(env []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Env = env
}

func (n *Notebook) config() *Config {
	n.mu.Lock()
	defer n.mu.Unlock()
	return new(n.cfg)
}

// Run runs a cell in the kernel of that session, starting one if need be. ctx
// bounds the wait: a cell that has begun goes on without its caller, and its
// output is lost then. Nothing was run where the error is one of this package's;
// ErrAbsent and a kernel that does not start are told with their reasons.
func (n *Notebook) Run(ctx context.Context, name string, c Cell) (Result, error) {
	s, err := n.session(name)
	if err != nil {
		return Result{}, err
	}
	if err = s.wait(ctx, c.Timeout); err != nil {
		n.leave(s)
		return Result{}, err
	}
	type answer struct {
		result Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		n.mark(s, true)
		a.result, a.err = n.run(s, c)
		n.mark(s, false)
		if ctx.Err() != nil && a.err == nil {
			n.setLost(s, cmp.Or(a.result.Ended, a.result.Lost)) // the next cell's caller hears of it
		}
		s.turn <- struct{}{}
		n.leave(s)
		done <- a
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
}

// session finds or makes a session, and counts the caller in.
func (n *Notebook) session(name string) (*session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	s := n.sessions[name]
	if (s == nil || !s.takesPlace()) && n.places() >= MaxKernels {
		return nil, ErrMany
	}
	if s == nil {
		n.makeRoom()
		s = &session{name: name, turn: make(chan struct{}, 1), closed: make(chan struct{})}
		s.turn <- struct{}{}
		n.sessions[name] = s
	}
	n.enter(s)
	return s, nil
}

func (n *Notebook) enter(s *session) {
	s.users++
	n.running.Add(1)
}

// leave counts out whoever entered. A session of which there is nothing left to
// tell is forgotten.
func (n *Notebook) leave(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.users--
	if s.users == 0 && s.kernel == nil && s.lost == "" && n.sessions[s.name] == s {
		delete(n.sessions, s.name)
	}
	n.running.Done()
}

// takesPlace tells whether a session has a kernel, or may start one.
func (s *session) takesPlace() bool {
	return s.users > 0 || s.kernel != nil && !s.kernel.over()
}

// places counts the sessions that take one.
func (n *Notebook) places() (count int) {
	for _, s := range n.sessions {
		if s.takesPlace() {
			count++
		}
	}
	return count
}

// makeRoom forgets a session whose kernel has ended, where there are too many.
func (n *Notebook) makeRoom() {
	for name, s := range n.sessions {
		if len(n.sessions) < maxSessions {
			return
		}
		if !s.takesPlace() {
			delete(n.sessions, name)
		}
	}
}

// mark says whether a session runs a cell.
func (n *Notebook) mark(s *session, busy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.busy, s.since = busy, time.Now()
}

// Sessions tells of the kernels that run, or of whose end the next cell will be
// told, by the names of their sessions.
func (n *Notebook) Sessions() []Info {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []Info
	for name, s := range n.sessions {
		i := Info{Session: name, State: Idle, Since: s.since}
		k := s.kernel
		switch {
		case s.busy:
			i.State = Busy
		case k == nil && s.lost == "":
			continue // a caller is about to begin
		case k == nil:
			i.State = Ended
		case k.over():
			i.State, i.Since = Ended, k.died
		}
		if k != nil && !k.over() {
			i.Python, i.PID = k.python, k.cmd.Process.Pid
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Session, b.Session) })
	return list
}

// wait takes the turn.
func (s *session) wait(ctx context.Context, timeout time.Duration) error {
	select { // without a timer in the usual case
	case <-s.turn:
		return nil
	default:
	}
	var limit <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case <-s.turn:
		return nil
	case <-limit:
		return ErrBusy
	case <-s.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run runs a cell with the turn.
func (n *Notebook) run(s *session, c Cell) (Result, error) {
	if s.idle != nil {
		s.idle.Stop()
	}
	k, err := n.living(s)
	if err != nil {
		return Result{}, err
	}
	if c.Dir != s.dir || k.homeless() {
		// In bytes: a name need not be text. Where it fails the kernel stays where it is.
		k.hidden(fmt.Sprintf("__import__('os').chdir(bytes.fromhex('%s'))", hex.EncodeToString([]byte(c.Dir))))
		s.dir = c.Dir
	}
	result := k.run(c)
	result.Lost = s.lost
	n.setLost(s, "")
	if result.Ended != "" {
		n.setKernel(s, nil)
		return result, nil
	}
	s.cells++
	cells, idle := s.cells, k.cfg.IdleTime
	s.idle = time.AfterFunc(idle, func() { n.stopIdle(s, cells, idle) })
	return result, nil
}

// living returns the session's kernel, or a new one where there is none that
// answers.
func (n *Notebook) living(s *session) (*kernel, error) {
	if k := s.kernel; k != nil {
		if !k.over() {
			err := k.beat()
			if err == nil {
				return k, nil
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				k.bury() // it has ended, though that may not have been seen yet
			}
		}
		switch {
		case s.lost != "": // stopped for its idleness
		case k.over():
			n.setLost(s, k.end())
		default:
			n.setLost(s, "did not answer its heartbeat and was killed")
		}
		k.stop(false)
	}
	k, err := n.start(s)
	if err != nil {
		return nil, err
	}
	n.setKernel(s, k)
	return k, nil
}

func (n *Notebook) setLost(s *session, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.lost = what
}

// setKernel changes the session's kernel. A session that was closed meanwhile
// by somebody who did not see the new one has it killed.
func (n *Notebook) setKernel(s *session, k *kernel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.kernel, s.dir = k, ""
	select {
	case <-s.closed:
		if k != nil {
			k.tree.Kill()
		}
	default:
	}
}

// start starts a kernel in the first interpreter that has ipykernel.
func (n *Notebook) start(s *session) (*kernel, error) {
	var tried []string
	broken := false // there is an ipykernel
	cfg := n.config()
	for _, program := range n.programs(cfg) {
		k, err := startKernel(cfg, program, s.closed)
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		if err != nil {
			broken = broken || !errors.As(err, new(*absentError))
			tried = append(tried, err.Error())
			continue
		}
		n.mu.Lock()
		n.python = program
		n.mu.Unlock()
		k.hidden("%colors nocolor")
		if cfg.Init != "" {
			k.hidden(cfg.Init)
		}
		return k, nil
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
		programs = slices.Insert(slices.Clone(programs), 0, n.python)
	}
	return programs
}

func (c *Config) candidates() (programs []string) {
	if c.Programs != nil {
		return c.Programs
	}
	_ = c.As(func() error {
		programs = candidates(c.Env)
		return nil
	})
	return programs
}

// Python returns the interpreter that has run a kernel, or that seems to have
// ipykernel; "" where there is none to be seen. It starts nothing.
func (n *Notebook) Python() (found string) {
	n.mu.Lock()
	found = n.python
	n.mu.Unlock()
	if found != "" {
		return found
	}
	cfg := n.config()
	programs := cfg.candidates()
	_ = cfg.As(func() error {
		for _, program := range programs {
			if found == "" && installed(program) {
				found = program
			}
		}
		return nil
	})
	return found
}

// stopIdle stops a kernel that has done nothing for a while, since as many cells
// as that.
func (n *Notebook) stopIdle(s *session, cells int, idle time.Duration) {
	n.mu.Lock()
	found := n.sessions[s.name] == s // and so it is waited for
	if found {
		n.enter(s)
	}
	n.mu.Unlock()
	if !found {
		return
	}
	defer n.leave(s)
	select {
	case <-s.turn:
	case <-s.closed:
		return
	}
	if s.cells == cells && s.kernel != nil && !s.kernel.over() {
		s.kernel.stop(true)
		n.setLost(s, fmt.Sprintf("was stopped after %v without a cell", idle))
	}
	s.turn <- struct{}{}
}

// CloseSession ends the kernel of that session; false where there is none. A
// cell that runs is answered with its kernel's end.
func (n *Notebook) CloseSession(name string) bool {
	n.mu.Lock()
	s := n.sessions[name]
	delete(n.sessions, name)
	n.mu.Unlock()
	if s == nil {
		return false
	}
	n.close(s)
	return true
}

// Close ends all kernels and returns when nothing of them is left.
func (n *Notebook) Close() {
	n.mu.Lock()
	n.closed = true
	sessions := n.sessions
	n.sessions = nil
	n.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() { n.close(s) })
	}
	all.Wait()
	n.running.Wait()
}

// close ends a session that nobody finds any more.
func (n *Notebook) close(s *session) {
	idle := false
	select {
	case <-s.turn: // and keeps it
		idle = true
	default:
	}
	n.mu.Lock()
	close(s.closed)
	k := s.kernel
	n.mu.Unlock()
	if idle && s.idle != nil {
		s.idle.Stop()
	}
	if k != nil {
		k.stop(idle && !k.over())
	}
}
