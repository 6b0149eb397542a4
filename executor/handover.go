package executor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/mcp"
	"github.com/actiond/actiond/executor/notebook"
)

// Frozen is the state of an Executor on its way to another program of the same process:
// its sessions, and what the next use of every other engine says. It can be written as
// JSON.
type Frozen struct {
	Mark     string
	Owners   map[string]string // variables of Export
	Sessions map[string]*bash.Frozen
	Kernels  map[string]string // how they ended, by session
	Browser  map[string]string
	MCP      []mcp.Server
}

// Unmovable names what runs that cannot be handed over: programs, also those whose action was
// answered, and cells.
func (e *Executor) Unmovable() (names []string) {
	names = e.programs.Running()
	if e.asRoot != nil {
		names = append(names, e.asRoot.Running()...)
	}
	if e.notebook != nil {
		for _, k := range e.notebook.Sessions() {
			if k.State == notebook.Busy {
				names = append(names, fmt.Sprintf("a cell in session %q", k.Session))
			}
		}
	}
	return names
}

// Freeze stops all sessions and returns the state of the executor. keep is called for each
// file that must stay open, and returns its descriptor; ended names the sessions whose
// shells will end. Until resume is called, everything that concerns a session waits.
func (e *Executor) Freeze(ctx context.Context, keep func(*os.File) (int, error)) (f *Frozen, ended []string, resume func()) {
	f = &Frozen{Mark: e.mark, Owners: e.Exported(), Sessions: map[string]*bash.Frozen{}, MCP: e.mcp.Servers()}
	if e.notebook != nil {
		f.Kernels = e.notebook.Losses(bash.Upgraded)
	}
	if e.browser != nil {
		f.Browser = e.browser.Losses(bash.Upgraded)
	}
	var frozen []*bash.Session
	for _, s := range e.sessions.shells.List() {
		if !s.Live {
			continue
		}
		state, err := s.Value.Freeze(ctx, keep)
		if err == nil {
			frozen = append(frozen, s.Value)
			f.Sessions[s.Name] = state
		}
		if err != nil || state.Lost {
			ended = append(ended, s.Name)
		}
	}
	slices.Sort(ended)
	return f, ended, func() {
		for _, s := range frozen {
			s.Resume()
		}
	}
}

// EndOthers ends what is not handed over but can be started again: kernels, the browser and
// MCP servers, and all programs. The next use of each is told. The executor works on.
func (e *Executor) EndOthers() {
	if e.notebook != nil {
		e.notebook.StopAll(bash.Upgraded)
	}
	if e.browser != nil {
		e.browser.StopAll(bash.Upgraded)
	}
	e.programs.EndAll()
	if e.asRoot != nil {
		e.asRoot.EndAll()
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
	if f.Owners != nil {
		e.setEnv(f.Owners)
	}
	adopted := map[int]bool{}
	for name, state := range f.Sessions {
		shell, err := bash.Restore(e.sessions.config, state)
		if err != nil {
			e.cfg.Logger.Error("a shell could not be taken over", slog.String("session", name), slog.Any("error", err))
			state.Shell, state.Current, state.Died = nil, nil, bash.Upgraded
			if shell, err = bash.Restore(e.sessions.config, state); err != nil {
				continue
			}
		}
		if state.Shell != nil {
			adopted[state.Shell.PID] = true
		}
		e.sessions.shells.Adopt(name, shell)
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
