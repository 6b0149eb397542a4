package bash

import (
	"fmt"
	"path/filepath"
	"strings"
)

// reportFD is where the shell writes its reports. It has one digit because
// bash marks the copies it keeps of such descriptors close-on-exec, and not
// those of higher ones; it is closed while a command runs, so that nothing the
// command starts inherits it.
const reportFD = 7

// The first field of a message on the report pipe, before the shell's token.
const (
	reportHeader = "R" // sequence number, $?, $!, flags, PATH, directory
	stateHeader  = "S" // exported variables, functions, aliases
)

const (
	reportFields = 6
	stateFields  = 3
)

// dialect is how the server's own lines are written for one kind of shell.
type dialect struct {
	isBash bool
	// call runs a builtin whatever functions and aliases are called.
	call string
}

// dialectOf goes by the name of the program: every shell but bash gets the
// POSIX form.
func dialectOf(program string) dialect {
	if strings.HasPrefix(filepath.Base(program), "bash") {
		return dialect{isBash: true, call: `\builtin `}
	}
	return dialect{call: `\command `}
}

// arguments start the shell interactive, reading its script from standard
// input without a line editor.
func (d dialect) arguments() []string {
	if d.isBash {
		return []string{"--noediting", "--norc", "-i"}
	}
	return []string{"-i"}
}

// setUp turns off what belongs to a person at a keyboard: history, its
// expansion with "!", the work done for prompts, logging out when idle and
// looking for mail. It runs after the person's own files. A prompt is kept, for
// such files ask by it whether they are read for a person.
func (d dialect) setUp() string {
	line := "PS1='$ ' PS2=; unset -v PROMPT_COMMAND TMOUT MAILCHECK HISTFILE 2>/dev/null\n"
	if d.isBash {
		return "set +o history +H; history -c; shopt -u promptvars; " + line
	}
	return line
}

// personalFiles reads what an interactive shell of the user would read.
func (d dialect) personalFiles() string {
	if !d.isBash {
		return ":" // a POSIX shell reads $ENV by itself
	}
	return `for actiond_rc in /etc/bash.bashrc ~/.bashrc; do [ ! -r "$actiond_rc" ] || . "$actiond_rc"; done; unset -v actiond_rc`
}

// run evaluates text with the terminal as its standard files. The redirections
// also undo what text does to them.
func (d dialect) run(text, terminal string) string {
	options := ""
	if d.isBash {
		options = "-- " // a text may begin with a dash
	}
	return fmt.Sprintf("%seval %s%s <>%s >&0 2>&0 %d>&-\n", d.call, options, quote(text), terminal, reportFD)
}

// status makes $? be n for the next command.
func (d dialect) status(n int) string {
	if d.isBash { // without a process
		return fmt.Sprintf("\\builtin . /dev/stdin <<<'return %d'\n", n)
	}
	return fmt.Sprintf("(exit %d)\n", n)
}

// report tells how the command before it ended. A shell that could not give the
// next one the terminal, and would run nothing while it says that all failed,
// does not report. The directory is what pwd prints: PWD is the command's to set.
func (d dialect) report(token string, seq uint64, terminal string) string {
	line := fmt.Sprintf(`%[1]sprintf '%%s\0' %[2]s%[3]s %[4]d "$?" "${!:-}" "$-" "${PATH-}" <>%[5]s >&%[6]d && { %[1]spwd; %[1]sprintf '\0'; } >&%[6]d`,
		d.call, reportHeader, token, seq, terminal, reportFD)
	if d.isBash { // what the command wants done at every prompt is done once
		line += `; \builtin unset -v PROMPT_COMMAND || \builtin :`
	}
	return line + "\n"
}

// closeQuotes ends what a line of ours left open when a signal cut it in two.
// Whichever quote it is, one of the two lines closes it; to a shell without an
// open quote both are comments.
const closeQuotes = "\n# '\n# \"\n"

// save tells what a new shell needs to take over from this one.
func (d dialect) save(token string) string {
	parts := []string{"export -p", ":", "alias"}
	if d.isBash {
		parts = []string{"declare -px", "declare -f", "alias -p"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{ %sprintf '%s%s\0';`, d.call, stateHeader, token)
	for _, part := range parts {
		fmt.Fprintf(&b, ` %s%s; %sprintf '\0';`, d.call, part, d.call)
	}
	fmt.Fprintf(&b, " } >&%d 2>/dev/null || %s:\n", reportFD, d.call)
	return b.String()
}

// quote makes text one word that the shell takes as it is. NUL bytes, which no
// shell can hold, are left out.
func quote(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// mayChangeState tells whether a command could change what save tells. It errs
// on the side of yes; a change of PATH is noticed without it.
func mayChangeState(text string) bool {
	for _, word := range []string{"=", "()", "alias", "unset", "function", "source", ". ", "eval", "export", "declare", "typeset", "readonly", "read "} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
