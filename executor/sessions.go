package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/keeper"
)

// defaultMaxSessions bounds the shells of a sandbox; each costs a process, about 4 MiB
// and eight descriptors.
const defaultMaxSessions = 512

// maxStarts bounds the starts at a time, each of which takes a thread as file work
// does.
const maxStarts = 4

// defaultSession is the name of the session of actions that name none.
const defaultSession = "default"

// sessions are the shells of a sandbox by name.
type sessions struct {
	shells   *keeper.Keeper[*bash.Session]
	config   bash.Config // without an environment, which shells has
	starting *semaphore.Weighted
	singles  *keeper.Keeper[*bash.Session] // for one command each
	count    atomic.Int64                  // of singles
}

func newSessions(config bash.Config, most int) *sessions {
	s := &sessions{config: config, starting: semaphore.NewWeighted(maxStarts)}
	kept := keeper.Config[*bash.Session]{
		Start: func(ctx context.Context, _ string, env []string) (*bash.Session, error) {
			return s.launch(ctx, config.Dir, env)
		},
		Stop: func(shell *bash.Session, _ bool) { shell.Close() },
		Env:  config.Env, Max: most,
	}
	s.shells = keeper.New(kept)
	kept.Start = func(ctx context.Context, name string, _ []string) (*bash.Session, error) {
		_, dir, _ := strings.Cut(name, " ")
		return s.launch(ctx, dir, s.shells.Env())
	}
	kept.Max = 0
	s.singles = keeper.New(kept)
	return s
}

func sessionName(name string) string {
	if name == "" {
		return defaultSession
	}
	return name
}

// get returns the shell of a session, starting it if need be. ctx bounds the wait,
// and the start goes on without its caller. The error is an *api.Error where there
// are too many sessions.
func (s *sessions) get(ctx context.Context, name string) (*bash.Session, error) {
	shell, err := s.shells.Get(ctx, sessionName(name))
	if errors.Is(err, keeper.ErrMany) {
		return nil, api.TooMany("too many sessions: close one first (DELETE /v1/sessions/NAME)")
	}
	return shell, err
}

// launch starts a shell when fewer than maxStarts are being started.
func (s *sessions) launch(ctx context.Context, dir string, env []string) (*bash.Session, error) {
	if err := s.starting.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer s.starting.Release(1)
	config := s.config
	config.Dir, config.Env = dir, env
	return bash.Start(ctx, config)
}

// single starts a shell for one command, which release ends. ctx bounds the wait.
func (s *sessions) single(ctx context.Context, dir string) (shell *bash.Session, release func(), err error) {
	name := fmt.Sprint(s.count.Add(1), " ", dir)
	if shell, err = s.singles.Get(ctx, name); err != nil {
		go s.singles.CloseSession(name) // it may take a moment to end a start
		return nil, nil, err
	}
	return shell, func() { s.singles.CloseSession(name) }, nil
}

// existing returns the shell of that session, nil where it was not started.
func (s *sessions) existing(name string) *bash.Session {
	shell, _ := s.shells.Lookup(sessionName(name))
	return shell
}

func (s *sessions) close(name string) bool { return s.shells.CloseSession(sessionName(name)) }

func (s *sessions) closeAll() {
	s.shells.Close()
	s.singles.Close()
}

// list lists the shells in no order.
func (s *sessions) list() []api.Session {
	list := []api.Session{}
	for _, kept := range s.shells.List() {
		if !kept.Live {
			continue
		}
		info := kept.Value.Info()
		state := "idle"
		if info.Busy {
			state = "busy"
		}
		list = append(list, api.Session{
			Name: kept.Name, State: state, WorkingDir: info.Dir, PID: info.PID, Shell: info.Program,
			Started: info.Started, Commands: info.Commands, OutputBytes: info.Bytes,
		})
	}
	return list
}

// program is the shell that the default session runs.
func (s *sessions) program() string {
	if shell := s.existing(""); shell != nil {
		return shell.Info().Program
	}
	return s.config.Program
}

// Attach lets a person look at the terminal of a session, which is started if
// it is not there, and type into it if types is set. ctx bounds the start and
// the typing; the caller must call Close. The error is an *api.Error for an
// invalid name or too many sessions.
func (e *Executor) Attach(ctx context.Context, session string, types bool) (*bash.Attachment, error) {
	if err := api.CheckSession(session); err != nil {
		return nil, err
	}
	shell, err := e.sessions.get(ctx, session)
	if err != nil {
		return nil, err
	}
	return shell.Attach(ctx, types), nil
}

// Sessions lists the shells and the kernels by the names of their sessions.
func (e *Executor) Sessions() []api.Session {
	list := e.sessions.list()
	e.addWaiting(list)
	if e.notebook != nil {
		list = e.addKernels(list, e.notebook.Sessions())
	}
	slices.SortFunc(list, func(a, b api.Session) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// CloseSession ends the shell and the kernel of that name, with SIGHUP for their
// programs. The error is an *api.Error with status 404 if the session does not exist.
// The default session begins anew with its next command.
func (e *Executor) CloseSession(_ context.Context, name string) error {
	if name == "" {
		name = defaultSession
	}
	e.turns.close(shellLine(name), nil)
	e.turns.close(kernelLine(name), nil)
	closed := e.sessions.close(name)
	if e.notebook != nil && e.notebook.CloseSession(name) {
		closed = true
	}
	if !closed {
		return api.NotFound(fmt.Sprintf("session %q does not exist", name))
	}
	return nil
}

// turns keep the actions of each session in the order in which they came, also while its shell
// or its kernel is being started: only the first of those that were not given to it yet
// asks the engine for the turn.
type turns struct {
	mu    sync.Mutex
	lines map[string]*line // by engine and session
}

// line is the queue of one session. The lock of its turns guards it.
type line struct {
	waiting []*turn       // in the order in which they came
	given   int           // actions that the engine has
	changed chan struct{} // closed at the next change
}

// turn is the place of an action in a line; nil for an action that waits for no other. Its
// methods may be called concurrently.
type turn struct {
	all    *turns
	name   string
	line   *line
	input  bool // for a command that runs
	stage  turnStage
	closed bool // with its session
}

type turnStage int

const (
	waits turnStage = iota
	given
	left
)

// Turn takes the place of an action in its session. The caller passes it to [Executor.Watch], and
// calls Leave in the end. It is nil for an action that waits for no other.
func (e *Executor) Turn(req api.Request) api.Turn { //nolint:ireturn // the caller only passes it on
	if t := e.turns.enter(req); t != nil {
		return t
	}
	return nil
}

func (all *turns) enter(req api.Request) *turn {
	input := false
	name := shellLine(req.Session)
	switch a := req.Action.(type) {
	case api.RunAction:
		if a.IsStatic {
			return nil
		}
		input = a.IsInput && (!a.Reference || strings.TrimSpace(a.Command) != "")
	case api.IPythonAction:
		name = kernelLine(req.Session)
	default:
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.lines[name]
	if l == nil {
		l = &line{changed: make(chan struct{})}
		if all.lines == nil {
			all.lines = map[string]*line{}
		}
		all.lines[name] = l
	}
	t := &turn{all: all, name: name, line: l, input: input}
	l.waiting = append(l.waiting, t)
	return t
}

func shellLine(session string) string  { return "shell " + sessionName(session) }
func kernelLine(session string) string { return "kernel " + sessionName(session) }

// wait returns once all actions before this one were given to the engine, or ended: for input
// once one was. queue is called before it waits. The error is that of ctx, or says that the
// session was closed.
func (t *turn) wait(ctx context.Context, queue func()) error {
	if t == nil {
		return nil
	}
	for {
		t.all.mu.Lock()
		first, changed := t.stage != waits || t.line.waiting[0] == t || t.input && t.line.given > 0, t.line.changed
		t.all.mu.Unlock()
		if err := t.check(); err != nil || first {
			return err
		}
		if queue != nil {
			queue()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// check returns an error where the session was closed since the action came.
func (t *turn) check() error {
	if t == nil {
		return nil
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.closed {
		return keeper.ErrClosed
	}
	return nil
}

// give says that the engine has the action: the next one may ask for the turn.
func (t *turn) give() { t.move(given) }

// Leave gives the place back. Further calls have no effect.
func (t *turn) Leave() { t.move(left) }

func (t *turn) move(stage turnStage) {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.move(t, stage)
}

// move changes the stage of a turn, which never goes back. The caller holds mu.
func (all *turns) move(t *turn, stage turnStage) {
	if stage <= t.stage {
		return
	}
	l := t.line
	if t.stage == waits {
		l.waiting = slices.DeleteFunc(l.waiting, func(other *turn) bool { return other == t })
	} else {
		l.given--
	}
	if t.stage = stage; stage == given {
		l.given++
	}
	close(l.changed)
	l.changed = make(chan struct{})
	if len(l.waiting) == 0 && l.given == 0 {
		delete(all.lines, t.name)
	}
}

// close ends the wait of the actions of a line that came before by, or of all where that is
// nil: their session is closed.
func (all *turns) close(name string, by *turn) {
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.lines[name]
	if l == nil {
		return
	}
	for _, t := range slices.Clone(l.waiting) {
		if t == by {
			return
		}
		t.closed = true
		all.move(t, left)
	}
}
