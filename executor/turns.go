package executor

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/internal/keeper"
)

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
		input = a.IsInput && strings.TrimSpace(a.Command) != ""
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
