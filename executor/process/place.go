package process

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/channel"
)

// maxLine bounds the last line of an output, in bytes.
const maxLine = 1 << 10

// Place is where a program that runs can be looked at.
type Place struct {
	PID int
	// Terminal is the path of its terminal and Group the foreground process group there;
	// "" and 0 without a terminal.
	Terminal string
	Group    int
	// Stdin is the name that links in /proc give the pipe of its standard input, as long as
	// the engine writes to it; otherwise "".
	Stdin string
	// LastOutput is when the last output came, or the program began.
	LastOutput time.Time
	// Line is the last line of the output, as far as it is kept: "" after the end of a line,
	// and where a listener holds up the output.
	Line string
}

// Place returns where the program can be looked at; false where it has ended.
func (p *Process) Place() (at Place, running bool) {
	if channel.Closed(p.exited) {
		return at, false
	}
	at = Place{PID: p.PID(), Terminal: p.terminal}
	if p.terminal != "" {
		_ = terminal.Control(p.sources[0].file, func(fd int) (err error) { // 0 where it is closed
			at.Group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			return err
		})
	}
	if p.input != nil && !p.input.terminal {
		var stat unix.Stat_t
		if err := terminal.Control(p.input.file, func(fd int) error { return unix.Fstat(fd, &stat) }); err == nil {
			at.Stdin = fmt.Sprintf("pipe:[%d]", stat.Ino)
		}
	}
	at.LastOutput = time.Now().Add(time.Duration(p.lastOutput.Load()) - proc.Uptime()) // by a clock that is not set
	if p.mu.TryLock() {                                                                // otherwise a listener that is slow has it
		at.Line = p.lastLine()
		p.mu.Unlock()
	}
	return at, true
}

// lastLine returns the end of the output behind the last line end. The caller holds mu.
func (p *Process) lastLine() string {
	text := p.kept[both].text()
	end := text.Tail
	if len(end) == 0 {
		end = text.Head
	}
	end = end[max(0, len(end)-maxLine):]
	return string(end[bytes.LastIndexByte(end, '\n')+1:])
}
