package executor

import (
	"net/netip"
	"time"

	"github.com/prometheus/procfs"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/internal/proc"
)

// Client finds the process that has the client's end of a connection to the local proxy, and the
// actions that it belongs to. The connection must stay open meanwhile.
func (e *Executor) Client(client, proxy netip.AddrPort) api.Origin {
	found := make(chan api.Origin, 1)
	if !e.listing.Do(func(until time.Time) { found <- e.client(client, proxy, until) }) {
		return api.Origin{}
	}
	return <-found
}

func (e *Executor) client(at, proxy netip.AddrPort, until time.Time) api.Origin {
	pid := e.ports.Client(at, proxy)
	if pid == 0 {
		return api.Origin{}
	}
	roots := e.roots(time.Now().Add(time.Until(until) / 2)) // the rest is for the looks below
	var o api.Origin
	client, _ := proc.Read(pid)
	var age time.Duration
	for _, ancestor := range proc.Lineage(pid) {
		p, _ := proc.Read(ancestor)
		if root, ok := roots[ancestor]; ok {
			if o = root; o.Session != "" && (client.Group != client.Foreground || client.Group == p.Group) { // a shell without job control has one group
				o.Age = age
			}
			break
		}
		age = max(age, p.Age())
	}
	if process, err := procfs.NewProc(pid); err == nil {
		name, _ := process.Comm() // "" where the process is gone meanwhile
		o.Process = proc.Printable(name)
	}
	return o
}

// roots returns the processes that the executor started for actions. until bounds the wait for
// those that are being started.
func (e *Executor) roots(until time.Time) map[int]api.Origin {
	roots := map[int]api.Origin{}
	for _, shell := range e.sessions.list() {
		roots[shell.PID] = api.Origin{Kind: api.RunAction{}.Kind(), Session: shell.Name}
	}
	for _, single := range e.sessions.singles.List() {
		if single.Live {
			roots[single.Value.Info().PID] = api.Origin{Kind: api.RunAction{}.Kind()}
		}
	}
	programs := e.programs.PIDs(until)
	if e.others != nil {
		programs = append(programs, e.others.PIDs(until)...)
	}
	for _, pid := range programs {
		roots[pid] = api.Origin{Kind: api.ExecAction{}.Kind(), PID: pid}
	}
	if e.notebook != nil {
		for _, kernel := range e.notebook.Sessions() {
			roots[kernel.PID] = api.Origin{Kind: api.IPythonAction{}.Kind(), Session: kernel.Session}
		}
	}
	if e.browser != nil {
		for _, pid := range e.browser.PIDs() {
			roots[pid] = api.Origin{Kind: api.BrowseAction{}.Kind()}
		}
	}
	for _, pid := range e.mcp.PIDs(until) {
		roots[pid] = api.Origin{Kind: api.MCPAction{}.Kind()}
	}
	delete(roots, 0) // of what has ended
	return roots
}

// idleRoots is [workspaceDeps.idle].
func (e *Executor) idleRoots() (sessions, idle []int) {
	for pid, origin := range e.roots(time.Now()) {
		switch origin.Kind {
		case api.RunAction{}.Kind(), api.IPythonAction{}.Kind():
			sessions = append(sessions, pid)
		case api.BrowseAction{}.Kind(), api.MCPAction{}.Kind():
			idle = append(idle, pid)
		}
	}
	return sessions, idle
}
