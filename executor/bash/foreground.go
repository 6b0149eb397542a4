package bash

import (
	"strings"
	"time"
)

// Foreground is a command that runs, as far as the terminal knows it.
type Foreground struct {
	// PID is the shell's process.
	PID int
	// Group is the process group that keys reach, which is the shell's own where the shell
	// itself carries out the command; 0 where it is not known.
	Group int
	// Terminal is the path of the terminal.
	Terminal string
	// LastOutput is when the last output came, or the command began.
	LastOutput time.Time
	// Line is the last line of the output, "" after the end of a line.
	Line string
}

// Foreground returns the command that runs; false where none does.
func (s *Session) Foreground() (Foreground, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.ended() || !s.alive {
		return Foreground{}, false
	}
	text, _ := s.screen.Text()
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if text == "" { // all of it was answered
		line = s.prompt
	}
	return Foreground{
		PID: s.shell.process.Pid, Group: s.shell.foreground(), Terminal: s.shell.term.name,
		LastOutput: s.lastByte, Line: line,
	}, true
}
