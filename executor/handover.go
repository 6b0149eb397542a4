package executor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/mcp"
	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/executor/process"
)

// Frozen is the state of an Executor on its way to another program of the same process:
// its sessions, programs and kernels, and what the next use of every other engine says. It can be written as
// JSON.
type Frozen struct {
	Mark     string
	Owners   map[string]string // variables of Export
	Sessions map[string]*bash.Frozen
	Kernels  map[string]string           // how they ended, by session
	Idle     map[string]*notebook.Frozen // kernels
	Browser  map[string]string
	MCP      []mcp.Server
	Actions  map[string]FrozenAction // by identity
	// Programs are those that no action waits for, RootPrograms those of root's.
	Programs, RootPrograms []*process.Frozen
}

// FrozenAction is an action under way.
type FrozenAction struct {
	Until   time.Duration   // the end of its wait, as [proc.Uptime] returns it; negative for none
	Program *process.Frozen // of an exec
	Root    bool            // the program is root's
	Run     *bash.Wait      // of a run that waits for the command in a session
	Session string
	Queued  bool // it is a run that has not begun, and begins anew
}

// moving are the actions under way that can be handed over.
type moving struct {
	mu        sync.Mutex // held from Freeze on: none of them ends meanwhile
	all       map[string]movable
	inherited map[string]FrozenAction // that have not gone on
}

// movable is the state of an action under way.
type movable struct {
	until   time.Duration
	program *process.Process // nil unless it is an exec
	session string
	run     *bash.Wait // nil unless it is a run that waits for a command
	queued  bool
}

// enter adds an action, and leave removes it. Nothing is added for an empty identity.
func (m *moving) enter(id string, a movable) (leave func()) {
	if id == "" {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]movable{}
	}
	m.all[id] = a
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.all, id)
	}
}

// Movable returns the identities of the actions that can go on in another program now.
func (e *Executor) Movable() map[string]bool {
	e.moving.mu.Lock()
	defer e.moving.mu.Unlock()
	ids := map[string]bool{}
	for id := range e.moving.all {
		ids[id] = true
	}
	return ids
}

// inherited returns the state of an action that another program handed over, once.
func (e *Executor) inherited(id string) (f FrozenAction, ok bool) {
	e.moving.mu.Lock()
	defer e.moving.mu.Unlock()
	f, ok = e.moving.inherited[id]
	delete(e.moving.inherited, id)
	return f, ok
}

// Unmovable names what runs, beside actions, that cannot be handed over: cells.
func (e *Executor) Unmovable() (names []string) {
	if e.notebook != nil {
		for _, k := range e.notebook.Sessions() {
			if k.State == notebook.Busy {
				names = append(names, fmt.Sprintf("a cell in session %q", k.Session))
			}
		}
	}
	return names
}

// Freeze stops all sessions and programs and returns the state of the executor. keep is called
// for each file that must stay open, and returns its descriptor; ended names what
// will end, which end does. Until resume is called, everything that concerns a session or a
// program waits.
func (e *Executor) Freeze(ctx context.Context, keep func(*os.File) (int, error)) (f *Frozen, ended []string, end, resume func()) {
	f = &Frozen{Mark: e.mark, Owners: e.Exported(), Sessions: map[string]*bash.Frozen{}, MCP: e.mcp.Servers(), Actions: map[string]FrozenAction{}}
	var resumes []func()
	if e.notebook != nil {
		f.Kernels = e.notebook.Losses(bash.Upgraded)
		var resume func()
		f.Idle, resume = e.notebook.Freeze(ctx, keep)
		resumes = append(resumes, resume)
		for name := range f.Idle {
			delete(f.Kernels, name)
		}
	}
	if e.browser != nil {
		f.Browser = e.browser.Losses(bash.Upgraded)
	}
	for _, s := range e.sessions.shells.List() {
		if !s.Live {
			continue
		}
		state, err := s.Value.Freeze(ctx, keep)
		if err == nil {
			resumes = append(resumes, s.Value.Resume)
			f.Sessions[s.Name] = state
		}
		if err != nil || state.Lost {
			ended = append(ended, fmt.Sprintf("the shell of session %q", s.Name))
		}
	}
	// Before the programs: their actions end only with this lock.
	e.moving.mu.Lock()
	resumes = append(resumes, e.moving.mu.Unlock)
	var waited, stuck []*process.Process
	for id, a := range e.moving.all {
		switch state := f.Sessions[a.session]; {
		case a.program != nil:
			waited = append(waited, a.program)
		case a.queued, state != nil && !state.Lost:
			f.Actions[id] = FrozenAction{Until: a.until, Session: a.session, Run: a.run, Queued: a.queued}
		}
	}
	for _, engine := range []*process.Engine{e.programs, e.asRoot} {
		if engine == nil {
			continue
		}
		programs, others, resume := engine.Freeze(ctx, waited, keep)
		resumes = append(resumes, resume)
		stuck = append(stuck, others...)
		left := maps.Clone(programs)
		for id, a := range e.moving.all {
			if state := programs[a.program]; state != nil {
				f.Actions[id] = FrozenAction{Until: a.until, Program: state, Root: engine == e.asRoot}
				delete(left, a.program)
			}
		}
		if engine == e.asRoot {
			f.RootPrograms = slices.Collect(maps.Values(left))
		} else {
			f.Programs = slices.Collect(maps.Values(left))
		}
	}
	for _, p := range stuck {
		ended = append(ended, fmt.Sprintf("the program %q", p.Name()))
	}
	slices.Sort(ended)
	return f, ended, func() { process.End(stuck) }, func() {
		for _, resume := range slices.Backward(resumes) {
			resume()
		}
	}
}

// EndOthers ends what is not handed over but can be started again: other kernels, the browser and
// MCP servers. The next use of each is told. The executor works on.
func (e *Executor) EndOthers(f *Frozen) {
	if e.notebook != nil {
		e.notebook.StopAll(bash.Upgraded, func(session string) bool { return f.Idle[session] != nil })
	}
	if e.browser != nil {
		e.browser.StopAll(bash.Upgraded)
	}
	if servers := e.mcp.Servers(); len(servers) > 0 { // unchanged ones would keep running
		_, err := e.mcp.Update(nil)
		_, again := e.mcp.Update(servers)
		if err = cmp.Or(err, again); err != nil {
			e.cfg.Logger.Error("configuring the MCP servers again", slog.Any("error", err))
		}
	}
}

// inherit goes on with the state of another program of this process. A session that cannot
// be taken over begins anew with its next action, which is told.
func (e *Executor) inherit(f *Frozen) {
	e.moving.inherited = f.Actions
	if f.Owners != nil {
		e.setEnv(f.Owners)
	}
	adopted, waited := map[int]bool{}, map[string]bool{}
	for _, a := range f.Actions {
		if a.Run != nil {
			waited[a.Session] = true
		}
	}
	for name, state := range f.Sessions {
		shell, err := bash.Restore(e.sessions.config, state, waited[name])
		if err != nil {
			e.cfg.Logger.Error("a shell could not be taken over", slog.String("session", name), slog.Any("error", err))
			state.Shell, state.Current, state.Died = nil, nil, bash.Upgraded
			if shell, err = bash.Restore(e.sessions.config, state, waited[name]); err != nil {
				continue
			}
		}
		if state.Shell != nil {
			adopted[state.Shell.PID] = true
		}
		e.sessions.shells.Adopt(name, shell)
	}
	for _, a := range f.Actions { // which the server goes on with
		if a.Program != nil {
			adopted[a.Program.PID] = true
		}
	}
	e.adopt(e.programs, f.Programs, adopted)
	e.adopt(cmp.Or(e.asRoot, e.programs), f.RootPrograms, adopted)
	for name, kernel := range f.Idle {
		if e.notebook == nil {
			break
		}
		if err := e.notebook.Restore(name, kernel); err != nil {
			e.cfg.Logger.Error("a kernel could not be taken over", slog.String("session", name), slog.Any("error", err))
			e.notebook.Lose(name, bash.Upgraded)
			continue
		}
		adopted[kernel.PID] = true
	}
	for name, how := range f.Kernels {
		if e.notebook != nil {
			e.notebook.Lose(name, how)
		}
	}
	for name, how := range f.Browser {
		if e.browser != nil {
			e.browser.Lose(name, how)
		}
	}
	if len(f.MCP) > 0 {
		if _, err := e.mcp.Update(f.MCP); err != nil {
			e.cfg.Logger.Error("configuring the MCP servers", slog.Any("error", err))
		}
	}
	if os.Getpid() == 1 { // the orphans of the sandbox are its children too
		return
	}
	for _, pid := range proc.Children() {
		if !adopted[pid] {
			_ = unix.Kill(pid, unix.SIGKILL)
			go proc.Reap(pid) // ends with the process, which no signal may reach
		}
	}
}

// adopt goes on with programs that no action waits for.
func (e *Executor) adopt(engine *process.Engine, programs []*process.Frozen, adopted map[int]bool) {
	for _, f := range programs {
		p, err := engine.Restore(f)
		if err != nil {
			e.cfg.Logger.Error("a program could not be taken over", slog.Any("error", err))
			continue
		}
		adopted[f.PID] = true
		p.Attend(nil)
		p.Leave()
	}
}
