// Package waiting finds out from the kernel whether a program that has not ended works, and
// for which object it waits: in /proc, with the rights of the program's user, and without stopping
// or tracing anything.
//
// A state that the kernel does not report is [Unknown]: silence alone says nothing.
package waiting

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
)

// Reason is the kind of activity of a process, or of the event that it waits for.
type Reason string

// The reasons in order of precedence: of several processes, the first reason in this list wins;
// then the youngest process.
const (
	// Input: it waits for input on its terminal, or on the standard input that is the
	// caller's.
	Input Reason = "input"
	// Busy: it runs, or could if there were a free processor.
	Busy Reason = "busy"
	// Disk: it waits in the kernel, most often for a disk, and no signal wakes it.
	Disk Reason = "disk"
	// Stopped: a signal has stopped it.
	Stopped Reason = "stopped"
	// Network: it waits for the other side of a connection.
	Network Reason = "network"
	// Sleeping: it waits for a time.
	Sleeping Reason = "sleep"
	// Lock: it waits for a lock of a file.
	Lock Reason = "lock"
	// Unknown: the kernel does not say.
	Unknown Reason = "unknown"
	// Connection: it waits for a client to connect to its socket.
	Connection Reason = "connection"
	// Other: it waits for something else, which On says.
	Other Reason = "other"
	// Mutex: it waits for another thread or process at a lock in memory.
	Mutex Reason = "mutex"
	// Pipe: it waits for the other side of a pipe.
	Pipe Reason = "pipe"
	// Child: it waits for the end of a child process.
	Child Reason = "child"
)

var order = []Reason{Input, Busy, Disk, Stopped, Network, Sleeping, Lock, Unknown, Connection, Other, Mutex, Pipe, Child}

func rank(r Reason) int { return slices.Index(order, r) }

const (
	// MaxLooks bounds the looks at a time.
	MaxLooks = 4
	// LookTime is how long a caller waits for a look.
	LookTime = 2 * time.Second
	// maxProcesses and maxThreads bound the processes of a target and the threads of a process that are examined.
	maxProcesses = 64
	maxThreads   = 64
	// maxOthers bounds the list of the other processes.
	maxOthers = 16
)

// Target is a program, or a shell that runs one, and the terminal.
type Target struct {
	// PID is the process that was started. It leads its session.
	PID int
	// Shell says that it is a shell that outlasts its commands. It is then one of the
	// processes of a command only where it is in the group.
	Shell bool
	// Group is the foreground process group of the terminal; 0 without one, and all
	// that descends from PID counts.
	Group int
	// Terminal is the path of the terminal, such as "/dev/pts/3", or "".
	Terminal string
	// Stdin is the name that links in /proc give the pipe from which the program reads the
	// input that its caller sends, while the caller may send some, otherwise "".
	Stdin string
}

// Process is one that was looked at.
type Process struct {
	PID     int
	Command string // the start of its command line, which can be printed; "" where that cannot be read
	// Background says that it is in the background of the shell.
	Background bool
}

// Finding is the activity of a command.
type Finding struct {
	// Reason is that of the process that says most.
	Reason Reason
	// On is the file, the peer or the thing that the reason is about, or "".
	On string
	// Or are other things that the process waits for, any of which wakes it, and the
	// reasons of its other threads.
	Or []Reason
	// Timer says that a time wakes it too.
	Timer bool
	// Holder is the process that holds the lock of the file; 0 where it is not known.
	Holder int
	// Process has the PID 0 where there is no process of the command.
	Process Process
	// Others are the further processes of the command, and then those that the shell has in
	// other process groups, at most 16, and More counts the rest.
	Others []Process
	More   int
}

// AwaitsInput reports whether input alone, or a time, lets the command go on.
func (f Finding) AwaitsInput() bool { return f.Reason == Input && len(f.Or) == 0 }

// Inspector finds out the activities of processes. Its methods may be called concurrently.
type Inspector struct {
	user  *identity.User
	bound *Bound
}

// New returns an Inspector for processes of a user; nil means the user of this process.
func New(user *identity.User) *Inspector {
	return &Inspector{user: user, bound: NewBound(MaxLooks, LookTime)}
}

// Inspect returns the activity of each of the targets. It takes about a millisecond for a hundred
// processes, and 2 seconds at most: those that are not known by then are Unknown.
func (in *Inspector) Inspect(targets ...Target) []Finding {
	unknown := make([]Finding, len(targets))
	for i := range unknown {
		unknown[i] = Finding{Reason: Unknown, On: "the kernel does not answer in time"}
	}
	if len(targets) == 0 {
		return unknown
	}
	var found []Finding
	if !in.bound.Do(func(until time.Time) { found = in.inspect(targets, until) }) {
		return unknown
	}
	return found
}

func (in *Inspector) inspect(targets []Target, until time.Time) []Finding {
	all := proc.Snapshot()
	found := make([]Finding, 0, len(targets))
	for _, t := range targets {
		found = append(found, in.inspectTarget(all, t, until))
	}
	return found
}

// seen is a process and its activity.
type seen struct {
	pid int
	state
}

func (in *Inspector) inspectTarget(all map[int]proc.Process, t Target, until time.Time) Finding {
	members, background := divide(all, t)
	f := Finding{Reason: Unknown, On: "there is no process of the command"}
	if len(members) > 0 {
		f = in.choose(all, t, members, until)
	}
	for i, pid := range slices.Concat(members, background) {
		switch {
		case pid == f.Process.PID:
		case len(f.Others) < maxOthers:
			f.Others = append(f.Others, Process{PID: pid, Command: proc.CommandLine(pid), Background: i >= len(members)})
		default:
			f.More++
		}
	}
	return f
}

// choose looks at the processes of a command and returns the most relevant state.
func (in *Inspector) choose(all map[int]proc.Process, t Target, members []int, until time.Time) Finding {
	states, some := map[int]state{}, members
	if len(some) > maxProcesses { // the last ones and the first ones
		some = slices.Concat(members[:maxProcesses/2], members[len(members)-maxProcesses/2:])
	}
	look := func() error {
		for _, pid := range some {
			if known, ok := states[pid]; !ok || known.denied {
				states[pid] = inspectProcess(pid, all[pid], t, until)
			}
		}
		return nil
	}
	_ = in.user.Do(look) // an error says that the rights could not be had
	if in.user.Credential() != nil {
		_ = look() // a program of this process's own user
	}
	var first *seen
	for _, pid := range members {
		now, ok := states[pid]
		if !ok || now.gone {
			continue
		}
		if first == nil || rank(now.reason) < rank(first.reason) {
			first = &seen{pid, now}
		}
	}
	if first == nil {
		return Finding{Reason: Busy, On: "its processes come and go"}
	}
	return Finding{
		Reason: first.reason, On: first.on, Or: first.or, Timer: first.timer, Holder: first.holder,
		Process: Process{PID: first.pid, Command: proc.CommandLine(first.pid)},
	}
}

// divide returns the processes of a command, the last one started first, and those that
// the shell or the program has in the background.
func divide(all map[int]proc.Process, t Target) (members, background []int) {
	in := map[int]bool{}
	for pid, p := range all {
		switch {
		case t.Group != 0 && p.Group == t.Group,
			t.Group == 0 && (pid == t.PID || proc.Descends(all, pid, t.PID)):
			in[pid] = true
		}
	}
	for pid := range all { // what they started, in groups and sessions of its own
		if t.Group == 0 || in[pid] || !proc.Descends(all, pid, t.PID) {
			continue
		}
		if belongs(all, pid, in, t) {
			members = append(members, pid)
		} else if pid != t.PID {
			background = append(background, pid)
		}
	}
	members = slices.AppendSeq(members, maps.Keys(in))
	slices.SortFunc(members, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(all[b].Begun), len(all[a].Begun)), cmp.Compare(all[b].Begun, all[a].Begun),
			cmp.Compare(b, a))
	})
	slices.Sort(background)
	return members, background
}

// belongs reports whether a process descends from one of a command: the shell has jobs in
// the background, too.
func belongs(all map[int]proc.Process, pid int, in map[int]bool, t Target) bool {
	for range len(all) {
		pid = all[pid].Parent
		if pid == 0 || t.Shell && pid == t.PID {
			return false
		}
		if in[pid] {
			return true
		}
	}
	return false
}

// inspectProcess sums up the activities of the threads of a process.
func inspectProcess(pid int, p proc.Process, t Target, until time.Time) state {
	threads, err := threadsOf(pid)
	if err != nil {
		return state{gone: true}
	}
	var all []state
	for _, tid := range threads {
		if time.Now().After(until) {
			break // the caller has left
		}
		now := thread{pid, tid, p, t, until}.look()
		if !now.gone {
			all = append(all, now)
		}
	}
	if len(all) == 0 {
		return state{gone: true}
	}
	first := all[0] // the main thread
	for _, now := range all[1:] {
		if idle(first.reason) || !idle(now.reason) && rank(now.reason) < rank(first.reason) {
			now.denied = now.denied || first.denied
			now.or = append(now.or, first.or...)
			now.or = append(now.or, first.reason)
			first = now
			continue
		}
		first.or = append(first.or, append(now.or, now.reason)...)
	}
	first.or = slices.DeleteFunc(first.or, func(r Reason) bool { return idle(r) || r == first.reason })
	slices.SortFunc(first.or, func(a, b Reason) int { return cmp.Compare(rank(a), rank(b)) })
	first.or = slices.Compact(first.or)
	return first
}

// idle reports whether a thread with that reason says nothing about its process: it waits
// for other threads, or for a signal.
func idle(r Reason) bool { return r == Mutex || r == Other || r == Sleeping || r == Child }

// threadsOf returns the ids of the threads of a process, the main one first.
func threadsOf(pid int) ([]int, error) {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(maxThreads)
	if len(names) == 0 {
		return nil, errors.Join(err, os.ErrNotExist)
	}
	threads := make([]int, 0, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			threads = append(threads, tid)
		}
	}
	slices.Sort(threads)
	if i := slices.Index(threads, pid); i > 0 {
		threads[0], threads[i] = threads[i], threads[0]
	}
	return threads, nil
}
