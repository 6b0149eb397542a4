package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/proc/reexec"
	"github.com/actiond/actiond/executor/internal/terminal"
)

// Prepare returns a program that is yet to be started.
func (e *Engine) Prepare(c Command) *Process {
	return &Process{
		engine: e, command: c, mark: proc.NewMark(), output: c.Output,
		launched: make(chan struct{}), exited: make(chan struct{}), over: make(chan struct{}), closing: make(chan struct{}),
		kept: [3]kept{{most: keptEach}, {most: keptEach}, {most: keptBoth}},
	}
}

// Start starts the program, which takes as long as its file system. It is called once. An
// error is a *StartError where there is no such program or it cannot be run, or ErrMany
// or ErrClosed.
func (p *Process) Start() error {
	defer close(p.launched)
	env, err := p.engine.admit(p)
	if err != nil {
		return err
	}
	_ = p.engine.cfg.Marks.Add(p.mark) // on a full disk the program would outlive a crash
	if err := p.launch(p.command, env); err != nil {
		p.Forget()
		p.engine.forget(p)
		return err
	}
	return nil
}

// launch starts the program and the goroutines of p.
func (p *Process) launch(c Command, env []string) error {
	if c.ClearEnv {
		env = nil
	}
	env = append(proc.Environ(env, c.Env), p.mark)
	program, err := p.find(c, env)
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: program, Args: c.Argv, Dir: c.Dir, Env: env,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: p.user().Credential()},
	}
	theirs, err := p.connect(c, cmd)
	if err == nil {
		err = startError(c, proc.Start(cmd))
	}
	closeAll(theirs)
	if err != nil {
		p.disconnect()
		return err
	}
	p.process, p.tree = cmd.Process, proc.NewTree(cmd.Process.Pid)
	if c.KillAfter > 0 {
		p.killAt = proc.Uptime() + c.KillAfter
	}
	p.begin()
	p.settling.Add(len(p.sources))
	p.startGoroutines()
	return nil
}

// startGoroutines starts the goroutines of a program that runs, or that left its streams to others.
func (p *Process) startGoroutines() {
	for _, s := range p.sources {
		p.running.Go(func() { p.read(s) })
	}
	if p.input != nil && !p.command.Stream {
		p.running.Go(p.input.feed)
	}
	if p.killAt > 0 {
		p.running.Go(p.limit)
	}
	go p.wait()
}

// defaultPath is where programs are looked for without a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// find returns the path of the program, with the user's rights. One that is relative is
// below the program's directory.
func (p *Process) find(c Command, env []string) (path string, err error) {
	name := c.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	err = p.user().Do(func() error {
		path = proc.LookPath(name, proc.EnvPath(env, defaultPath))
		return nil
	})
	if err == nil && path == "" {
		err = &StartError{Code: 127, Reason: name + ": not found"}
	}
	return path, err
}

// maxWord is the kernel's bound of an argument or a variable (execve(2), MAX_ARG_STRLEN).
const maxWord = 32*4096 - 1

// startError makes a StartError of an error of the kernel.
func startError(c Command, err error) error {
	if err == nil {
		return nil
	}
	failed := &StartError{Code: 126, Reason: err.Error()}
	at, ok := errors.AsType[*fs.PathError](err)
	switch {
	case !ok:
	case at.Op == reexec.StepDir:
		failed.Reason = fmt.Sprintf("%s: cannot begin in %s: %v", c.Argv[0], c.Dir, at.Err)
	default:
		if at.Op == reexec.StepExec && errors.Is(at.Err, unix.ENOENT) {
			failed.Code = 127
		}
		failed.Reason = fmt.Sprintf("%s: %v", c.Argv[0], at.Err)
		if errors.Is(at.Err, unix.E2BIG) {
			failed.Reason += fmt.Sprintf(": a word may have %d bytes; give more as standard input", maxWord)
		}
	}
	return failed
}

// connect makes the streams of the program, and returns its ends of them, which the
// caller closes, also after an error.
func (p *Process) connect(c Command, cmd *exec.Cmd) (theirs []*os.File, err error) {
	if c.Terminal != nil {
		return p.connectTerminal(c, cmd)
	}
	for stream := Stdout; stream <= Stderr && err == nil; stream++ {
		var ours, end *os.File
		if ours, end, err = os.Pipe(); err == nil {
			p.sources = append(p.sources, &source{stream: stream, file: ours, settle: p.settling.Done})
			theirs = append(theirs, end)
		}
	}
	if err == nil && (c.Input != nil || c.Stream) {
		var ours, end *os.File
		if end, ours, err = os.Pipe(); err == nil {
			p.input = newInput(ours, false, c.Input)
			theirs = append(theirs, end)
			cmd.Stdin = end
		}
	}
	if err == nil {
		cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	}
	return theirs, err
}

// connectTerminal is connect where all streams are one.
func (p *Process) connectTerminal(c Command, cmd *exec.Cmd) (theirs []*os.File, err error) {
	master, slave, err := terminal.Open(p.user())
	if err != nil {
		return nil, err
	}
	p.terminal = slave.Name()
	p.sources = []*source{{stream: Stdout, file: master, settle: p.settling.Done}}
	cmd.Stdout, cmd.Stderr = slave, slave
	cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 1 // its standard output
	switch {
	case c.Stream:
		cmd.Stdin = slave
		p.input = newInput(master, true, nil)
	case c.Input != nil:
		cmd.Stdin = slave
		p.input = newInput(master, true, append(bytes.Clone(c.Input), ending(c.Input)...))
	}
	return []*os.File{slave}, terminal.Resize(master, c.Terminal.Rows, c.Terminal.Cols)
}

// disconnect closes our ends of the streams of a program that was not started.
func (p *Process) disconnect() {
	for _, s := range p.sources {
		_ = s.file.Close()
	}
	if p.input != nil {
		p.input.close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
