// Package process starts programs without a shell that persists: each with streams of
// its own, which are kept at their beginning and their end, and counted.
//
// A program goes on whether a caller waits for it or not. A process that it leaves
// behind lives on, as behind a shell, and does not hold up the answer: where such a
// process has inherited the output, that is read and dropped from then on.
package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/channel"
)

const (
	// drainTime is how long output is waited for once the program has ended and another
	// process holds its end of the output: a filter that it started ends a moment later.
	drainTime = 200 * time.Millisecond
	// killGrace is the time of a program between SIGTERM and SIGKILL.
	killGrace = 2 * time.Second
	// interruptGrace is the time of a cancelled program between SIGINT and SIGTERM.
	interruptGrace = 2 * time.Second
	// closeGrace is the same where the engine is closed, and closeTime how long that
	// waits for processes that cannot be killed.
	closeGrace = 300 * time.Millisecond
	closeTime  = 2 * time.Second
)

// Causes of the end of a process, in Result.
const (
	ByKillAfter = "kill_after" // its time was over
	ByCancel    = "cancel"     // Cancel was called
	ByServer    = "server"     // the engine was closed
)

// Process is a program that was started. Its methods may be called concurrently.
//
// Once started it owns a goroutine that waits for the program's end, one for each stream, and one
// each where there is input or a limit. They end with the program and with whatever holds its
// streams, at the latest with the engine.
type Process struct {
	engine  *Engine
	command Command
	process *os.Process
	tree    *proc.Tree
	mark    string // of it and of all that it starts

	launched   chan struct{} // closed once it runs, or could not be started
	exited     chan struct{} // closed once the program ended
	over       chan struct{} // closed once its output is whole, too
	closing    chan struct{} // closed where the engine wants no more of it
	closeOnce  sync.Once
	running    sync.WaitGroup // all goroutines but the one that waits
	sources    []*source
	input      *input        // nil where it has none
	lastOutput atomic.Int64  // when that came, as [proc.Uptime] returns it
	terminal   string        // the path of its terminal, "" where it has none
	killAt     time.Duration // when its time is over, as [proc.Uptime] returns it; 0 for never

	settling sync.WaitGroup // sources that have not yet delivered the bytes from before the end

	mu      sync.Mutex   // held while output is called, which may take long
	output  func(Chunk)  // nil without a listener
	kept    [3]kept      // by Stream, and both
	left    bool         // its output is not wanted
	final   *Result      // nil before the end
	endedBy atomic.Value // a string
}

// Result describes a process that ended or runs.
type Result struct {
	// Running says that the program has not ended.
	Running bool
	PID     int
	// ExitCode is -1 while it runs, and where a signal ended it.
	ExitCode int
	// Signal is the name of the signal that ended it, such as "SIGKILL", or "".
	Signal string
	// EndedBy is ByKillAfter, ByCancel or ByServer where it ended because this engine
	// told it to, otherwise "".
	EndedBy string
	// CPU is the processor time of it and of the children that it waited for, once it
	// has ended.
	CPU time.Duration
	// MaxRSS is the largest resident set of it or a child that it waited for, in bytes;
	// 0 while it runs, and where it was smaller than this process's own, which the
	// kernel counts for a child that has not yet executed its program.
	MaxRSS int64
	// Stdout, Stderr and Both, which are both in the order of arrival, are its output.
	// On a terminal all is Stdout.
	Stdout, Stderr, Both Text
}

// PID returns the process id of the program, which is also that of its session and of
// its process group.
func (p *Process) PID() int { return p.process.Pid }

// Forget takes the mark of the program out of [Config].Marks: it lives on after a crash of this process.
func (p *Process) Forget() { p.engine.cfg.Marks.Remove(p.mark) }

// Wait returns how the program ended, or how it is when the limit is over, unless that
// is negative. ctx bounds the wait too; its cause is the error then. The program goes on
// in either case.
func (p *Process) Wait(ctx context.Context, limit time.Duration) (Result, error) {
	var late <-chan time.Time
	if limit >= 0 {
		late = time.After(limit)
	}
	select {
	case <-p.over:
	case <-late:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	return p.result(), nil
}

func (p *Process) result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final != nil {
		return *p.final
	}
	r := Result{Running: true, PID: p.PID(), ExitCode: -1}
	r.EndedBy, _ = p.endedBy.Load().(string)
	p.texts(&r)
	return r
}

// texts sets the kept output in r. The caller holds mu.
func (p *Process) texts(r *Result) {
	r.Stdout, r.Stderr, r.Both = p.kept[Stdout].text(), p.kept[Stderr].text(), p.kept[both].text()
}

// Leave ends the interest of the caller that started the program: no call of
// Command.Output is under way or follows when it has returned, later output is read
// and dropped, and a stream of input ends. It may be called at
// any time.
func (p *Process) Leave() {
	if channel.Closed(p.launched) && p.command.Stream && p.input != nil {
		p.input.close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.output = true, nil
	p.kept = [3]kept{}
	if p.final != nil {
		p.final.Stdout, p.final.Stderr, p.final.Both = Text{}, Text{}, Text{}
	}
}

// wait is the one place where the program is waited for.
func (p *Process) wait() {
	p.awaitEnd()
	p.Forget()
	p.running.Wait()
	p.engine.forget(p)
}

// awaitEnd returns when the program has ended and its output is whole.
func (p *Process) awaitEnd() {
	p.tree.AwaitRoot()
	state, _ := p.process.Wait() // an error leaves no state
	close(p.exited)
	if p.input != nil {
		p.input.close()
	}
	for _, s := range p.sources {
		_ = s.file.SetReadDeadline(time.Now().Add(p.engine.drain))
	}
	p.settling.Wait()
	p.mu.Lock()
	p.final = p.ended(state)
	p.kept = [3]kept{}
	p.mu.Unlock()
	close(p.over)
}

// ended says how the program ended. The caller holds mu.
func (p *Process) ended(state *os.ProcessState) *Result {
	r := Result{PID: p.PID(), ExitCode: -1}
	p.texts(&r)
	r.EndedBy, _ = p.endedBy.Load().(string)
	if state == nil {
		return &r
	}
	r.ExitCode, r.CPU = state.ExitCode(), state.UserTime()+state.SystemTime()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = unix.SignalName(status.Signal())
	}
	var own unix.Rusage
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok && unix.Getrusage(unix.RUSAGE_SELF, &own) == nil && usage.Maxrss > own.Maxrss {
		r.MaxRSS = usage.Maxrss << 10
	}
	return &r
}

// limit ends the program, and the processes that it left behind, when its time is over.
func (p *Process) limit() {
	timer := time.NewTimer(p.killAt - proc.Uptime())
	defer timer.Stop()
	over := p.over
	for {
		select {
		case <-timer.C:
			p.end(ByKillAfter, killGrace)
			return
		case <-p.closing:
			return
		case <-over:
			if !p.signalMarked(0, nil) {
				return
			}
			over = nil
		}
	}
}

// end asks the program and all that it started to end, and kills the remaining ones
// after the grace.
func (p *Process) end(by string, grace time.Duration) {
	var reached map[int]bool
	p.tree.Do(func(root int) {
		p.endedBy.CompareAndSwap(nil, by)
		reached = proc.SignalTree(root, unix.SIGTERM)
	})
	p.signalMarked(unix.SIGTERM, reached)
	p.awaitAll(grace)
	p.tree.Kill()
	for _, user := range p.engine.users() {
		proc.KillMarked(p.mark, user)
	}
}

// signalMarked sends a signal to the processes with the mark of p, but to none with an excepted
// number, and reports whether it found a process.
func (p *Process) signalMarked(what unix.Signal, except map[int]bool) (found bool) {
	for _, user := range p.engine.users() {
		found = proc.SignalMarked(p.mark, user, what, except) || found
	}
	return found
}

// Cancel ends the program and all that it started: with SIGINT, after a grace with
// SIGTERM, and after another with SIGKILL. It returns when they have ended, or were killed.
// It has no effect on a program that has ended, and on processes that it left.
func (p *Process) Cancel() {
	<-p.launched
	if p.tree == nil || channel.Closed(p.exited) {
		return // it was not started, or it ended by itself
	}
	p.tree.Do(func(root int) {
		p.endedBy.CompareAndSwap(nil, ByCancel)
		proc.SignalTree(root, unix.SIGINT)
	})
	p.awaitAll(interruptGrace)
	p.end(ByCancel, killGrace)
}

// ErrEnded says that the program has ended, or was not started.
var ErrEnded = errors.New("the program has ended")

// ErrNoTerminal says that the program has no terminal.
var ErrNoTerminal = errors.New("the program has no terminal: it was not started with one")

// Signal sends a signal to the process group of the program. It returns ErrEnded where
// there is no program, and waits for its start.
func (p *Process) Signal(what unix.Signal) error {
	<-p.launched
	err := ErrEnded
	if p.tree != nil {
		p.tree.Do(func(root int) { err = unix.Kill(-root, what) })
	}
	return err
}

// Resize gives the terminal of the program a size, which tells the program by SIGWINCH.
// It returns ErrEnded or ErrNoTerminal, and waits for the start.
func (p *Process) Resize(size Size) error {
	<-p.launched
	switch {
	case p.command.Terminal == nil:
		return ErrNoTerminal
	case p.tree == nil || channel.Closed(p.exited):
		return ErrEnded
	}
	err := terminal.Resize(p.sources[0].file, size.Rows, size.Cols)
	if errors.Is(err, os.ErrClosed) { // it has just ended
		return ErrEnded
	}
	return err
}

// awaitAll returns when the program has ended and nothing that bears its mark is left,
// or after limit.
func (p *Process) awaitAll(limit time.Duration) {
	const pause = 25 * time.Millisecond // looking at all processes takes about one
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(pause)
	defer look.Stop()
	select {
	case <-p.exited:
	case <-deadline.C:
		return
	}
	for p.signalMarked(0, nil) {
		select {
		case <-look.C:
		case <-deadline.C:
			return
		}
	}
}
