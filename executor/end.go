package executor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/executor/process"
)

// upgraded says how a browser ended.
const upgraded = "was ended by an upgrade of the server"

// Running names the commands, cells and programs that run now, whether or not an action waits for
// them. Background jobs of shells are not among them.
func (e *Executor) Running() (names []string) {
	for _, s := range e.sessions.shells.List() {
		if s.Live && s.Value.Info().Busy {
			names = append(names, fmt.Sprintf("the command in session %q", s.Name))
		}
	}
	if e.notebook != nil {
		for _, k := range e.notebook.Sessions() {
			if k.State == notebook.Busy {
				names = append(names, fmt.Sprintf("the cell in session %q", k.Session))
			}
		}
	}
	for _, engine := range e.engines() {
		for _, name := range engine.Running() {
			names = append(names, fmt.Sprintf("the program %q", name))
		}
	}
	slices.Sort(names)
	return names
}

func (e *Executor) engines() []*process.Engine {
	if e.others == nil {
		return []*process.Engine{e.programs}
	}
	return []*process.Engine{e.programs, e.others}
}

// EndAll ends all sessions, programs, MCP servers and the browser, and the processes that bear their
// marks, and returns their names once they are gone, or cannot be killed. ctx bounds the wait for marked
// processes. The executor stays usable: each begins anew with its next action.
func (e *Executor) EndAll(ctx context.Context) (ended []string) {
	var ending sync.WaitGroup
	for _, s := range e.sessions.shells.List() {
		if s.Live {
			ended = append(ended, fmt.Sprintf("the shell of session %q", s.Name))
		}
		ending.Go(func() { _ = e.CloseSession(ctx, s.Name) }) // it may have ended
	}
	for _, s := range e.sessions.singles.List() {
		ending.Go(func() { e.sessions.singles.CloseSession(s.Name) })
	}
	if e.notebook != nil {
		for _, k := range e.notebook.Sessions() {
			if k.State != notebook.Ended {
				ended = append(ended, fmt.Sprintf("the kernel of session %q", k.Session))
			}
			ending.Go(func() { _ = e.CloseSession(ctx, k.Session) }) // it may have ended with its shell
		}
	}
	for _, engine := range e.engines() {
		for _, name := range engine.Running() {
			ended = append(ended, fmt.Sprintf("the program %q", name))
		}
		ending.Go(engine.EndAll)
	}
	if e.browser != nil {
		if e.browser.Runs() {
			ended = append(ended, "the browser")
		}
		ending.Go(func() { e.browser.StopAll(upgraded) })
	}
	for _, s := range e.mcp.Servers() {
		ended = append(ended, fmt.Sprintf("MCP server %q", s.Name))
	}
	ending.Go(func() { _, _ = e.mcp.Update(nil) }) // no server can be wrong
	ending.Wait()
	marks := e.cfg.Marks.Marks()
	marks[sessionsMark(e.mark)] = true // also where no mark is recorded
	endMarked(ctx, marks, e.cfg.User)
	slices.Sort(ended)
	return slices.Compact(ended)
}

// EndChildren kills the children that a program left which this process executed before: the caller
// starts none meanwhile. PID 1 has the orphans of the sandbox among its children, and kills none.
func EndChildren() {
	if os.Getpid() == 1 {
		return
	}
	for _, pid := range proc.Children() {
		_ = unix.Kill(pid, unix.SIGKILL)
		go proc.Reap(pid) // ends with the process, which no signal may reach
	}
}
