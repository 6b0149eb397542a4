package actions

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

const (
	// maxTally bounds the hosts, ports and reasons that are counted for an action.
	maxTally = 256
	// startTime bounds the wait for programs that have begun, and are yet to be known.
	startTime = time.Second
	// startTick is the unit of the time of a process's start.
	startTick = 10 * time.Millisecond
)

// networkKinds are the actions whose processes can use the network.
var networkKinds = []string{
	api.RunAction{}.Kind(), api.ExecAction{}.Kind(), api.IPythonAction{}.Kind(),
	api.BrowseAction{}.Kind(), api.BrowseInteractiveAction{}.Kind(), api.MCPAction{}.Kind(),
}

// Denial is a connection that the network policy refused.
type Denial struct {
	Time   time.Time
	Host   string
	Port   int
	Reason string
}

// Denied counts a denial for the action that the process belongs to. Where that is not known, it is
// of the only action under way that can use the network; where there are several, it is of none, as
// it is where the process is known to belong to an action that has ended. A process that an earlier command left in a shell is not
// known.
func (m *Manager) Denied(o api.Origin, d Denial) {
	open := m.networked()
	run := ownerOf(open, o)
	left := run != nil && o.Age > time.Since(time.Unix(0, run.began.Load()))+startTick
	known := run != nil && !left
	switch {
	case left && len(open) > 1:
		run = nil
	case run == nil && o.Kind == "" && len(open) == 1:
		run = open[0]
	}
	if run != nil {
		run.denials().add(d, o.Process, known)
	}
}

// networked returns the actions under way that can use the network, the oldest first.
func (m *Manager) networked() []*Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	var open []*Run
	for _, run := range m.runs {
		if info := run.action.Info(); info.State == journal.Running && slices.Contains(networkKinds, info.Kind) {
			open = append(open, run)
		}
	}
	slices.SortFunc(open, func(a, b *Run) int { return cmp.Compare(a.action.N(), b.action.N()) })
	return open
}

// ownerOf returns the action that a process belongs to, or nil. Of several in one session it is the
// oldest: others ask for the output of its command, or send keys. Browsers and MCP servers work for
// all actions of their kinds.
func ownerOf(open []*Run, o api.Origin) *Run {
	until := time.Now().Add(startTime)
	var found []*Run
	for _, run := range open {
		if run.owns(o, until) {
			found = append(found, run)
		}
	}
	switch {
	case len(found) == 1, len(found) > 1 && o.Session != "":
		return found[0]
	}
	return nil
}

// owns reports whether a process may belong to the action. until bounds the wait for its start.
func (r *Run) owns(o api.Origin, until time.Time) bool {
	info := r.action.Info()
	switch a := r.call.Request.Action.(type) {
	case api.RunAction:
		return o.Kind == info.Kind && (o.Session == "" && a.IsStatic || o.Session == SessionOf(info) && !a.IsStatic)
	case api.IPythonAction:
		return o.Kind == info.Kind && o.Session == SessionOf(info)
	case api.ExecAction:
		return o.Kind == info.Kind && r.programID(until) == o.PID
	case api.BrowseAction, api.BrowseInteractiveAction:
		return o.Kind == (api.BrowseAction{}).Kind()
	case api.MCPAction:
		return o.Kind == info.Kind
	default:
		return false
	}
}

// programID returns the process id of the program of an exec; 0 where it has none. A program may ask
// for a connection before its action learns that it runs.
func (r *Run) programID(until time.Time) int {
	select {
	case <-r.started:
		return r.program.PID()
	case <-r.done:
	case <-time.After(time.Until(until)):
	}
	return 0
}

// denials returns the denials of the action, which has none before the first one.
func (r *Run) denials() *tally {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.denied.Load() == nil {
		r.denied.Store(&tally{begun: r.begun, known: true, hosts: map[string]*api.Denied{}})
	}
	return r.denied.Load()
}

// tally counts the denials of an action. Its methods may be called concurrently.
type tally struct {
	begun time.Time

	mu    sync.Mutex
	known bool // all are of processes of the action
	hosts map[string]*api.Denied
	more  int // denials of further hosts
}

func (t *tally) add(d Denial, process string, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = t.known && known
	key := net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) + " " + d.Reason
	one := t.hosts[key]
	switch {
	case one == nil && len(t.hosts) >= maxTally:
		t.more++
		return
	case one == nil:
		one = &api.Denied{Host: d.Host, Port: d.Port, Reason: d.Reason, Process: process, FirstMS: max(0, d.Time.Sub(t.begun).Milliseconds())}
		t.hosts[key] = one
	}
	one.Count++
}

// network returns the denials as a part of the observation.
func (t *tally) network() *api.Network {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &api.Network{More: t.more, Attributed: t.known}
	for _, one := range t.hosts {
		n.Denied = append(n.Denied, *one)
	}
	slices.SortFunc(n.Denied, func(a, b api.Denied) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.FirstMS, b.FirstMS), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Reason, b.Reason))
	})
	for _, one := range n.Denied[min(len(n.Denied), api.MaxDenied):] {
		n.More += one.Count
	}
	n.Denied = n.Denied[:min(len(n.Denied), api.MaxDenied)]
	return n
}
