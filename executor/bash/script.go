package bash

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/actiond/actiond/internal/shellquote"
)

// The first field of a message on the report pipe, before the shell's token.
const (
	reportHeader = "R" // see report
	stateHeader  = "S" // exported variables, and bash's functions and aliases
)

// How many fields follow the header.
const (
	reportFields = 6
	stateFields  = 3
)

// progressVar is a variable of the shell in which the server's lines keep how
// far the shell got: the number of the command that it began last and, once that
// has ended, a space and its status. It survives a report that could not be made,
// so a later one can still say the status.
const progressVar = "actiond_status"

// dialect is how the server's own lines are written for one kind of shell.
//
// The shell's standard input is the pipe with these lines, its standard output is
// the report pipe, and its standard error is the begin pipe. Only while a command is
// evaluated are all three the terminal.
//
// The begin pipe holds the shell's message before each command, beside its prompts and
// its errors. Reports wake the server, and the begin pipe does not: the server
// reads it before each command, where one does not end, and at the shell's end.
type dialect struct {
	isBash bool
	// call runs a builtin, also where a function or an alias has its name.
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

// setUp turns off the features for a person at a keyboard: history, its expansion
// with "!", and looking for mail. It runs after the person's own files.
func (d dialect) setUp() string {
	line := d.call + "unset -v MAILCHECK HISTFILE || " + d.call + ":; " + d.resetPrompts() + "\n"
	if d.isBash {
		return "set +o history +H; history -c; " + line
	}
	return line
}

// resetPrompts unsets everything that would run or wait before the shell reads its next
// line: prompts with substitutions, PROMPT_COMMAND, and the time limit for typing.
// PS1 keeps a value, because files for people look at it to find out whether a
// person reads their output.
func (d dialect) resetPrompts() string {
	if d.isBash {
		return `\builtin unset -v PROMPT_COMMAND TMOUT || \builtin :; PS0= PS1='$ ' PS2=`
	}
	// The name of a shell may hide that it is bash. Outside of eval, dash drops the lines that it
	// read ahead where a prompt is read-only.
	return `\command unset -v PROMPT_COMMAND PS0 TMOUT || \command :; \command eval "PS1='\$ ' PS2=" || \command :`
}

// personalFiles is a command that reads the files that an interactive shell of the user
// would read.
func (d dialect) personalFiles() string {
	if !d.isBash {
		return "" // a POSIX shell reads $ENV by itself
	}
	return `for actiond_rc in /etc/bash.bashrc ~/.bashrc; do [ ! -r "$actiond_rc" ] || . "$actiond_rc"; done; unset -v actiond_rc`
}

// eval evaluates text with a file, usually the terminal, as its standard input,
// output and error. The redirections also undo those of text.
func (d dialect) eval(text, file string) string {
	options := ""
	if d.isBash {
		options = "-- " // a text may begin with a dash
	}
	return d.call + "eval " + options + shellquote.Word(text) + " <>" + file + " >&0 2>&0"
}

// command runs text as command number seq and reports how it ended. $? is status
// when it begins.
//
// It is one line, so the shell does nothing of its own between the command and
// the report: no prompt, no PROMPT_COMMAND. And the shell has read all of it
// before the command begins: some shells read ahead into a buffer that commands
// inherit, and BusyBox's applets would take the rest there for their input.
//
// Before the text begins, the shell says so on the begin pipe and sets progressVar. Where eval
// does not work, or the terminal cannot be opened, the text is not run, and
// progressVar keeps its value.
func (d dialect) command(token string, seq int64, text string, status int, terminal string) string {
	// First try whether eval works and, for a POSIX shell, the terminal opens.
	n := strconv.FormatInt(seq, 10)
	try, begin := d.eval("", terminal), progressVar+"="+n
	begins, to := d.call+`printf '\0%s\0%s\0' `+token+" "+n, " >&2"
	if status != 0 {
		begin += fmt.Sprintf(`$(\exit %d)`, status)
	}
	run := d.eval(text, terminal)
	if d.isBash {
		// The message has the redirections that the text will have: it is sent only where these can be done.
		try, to, begin = d.call+"eval -- ''", " <>"+terminal+" >&2 2>&1", ""
		// The assignment is in a redirection that does nothing else: they are done one
		// after the other, so it happens only where the others could be done.
		run += ` <&"$((` + progressVar + "=" + n + `,0))"`
		if status != 0 { // this way needs no process
			begin = fmt.Sprintf(`\builtin . /dev/stdin <<<'return %d'`, status)
		}
	}
	switch {
	case status != 0:
		// In a list, a status neither ends a shell with set -e nor runs an ERR trap.
		run = "{ " + begin + " && " + d.call + ":; " + run + "; }"
	case begin != "":
		run = begin + " && " + run
	}
	return try + " && " + begins + to + " && " + run + "; " + d.ask(token, seq)
}

// beginMessage is the message of the shell on the begin pipe before command number seq.
func beginMessage(token string, seq int64) []byte {
	return fmt.Appendf(nil, "\x00%s\x00%d\x00", token, seq)
}

// report sends progressVar, $!, $-, PATH and the working directory, as the answer
// to a question about command number seq. The directory does not come from PWD,
// which may have any value. The message begins with a NUL, which ends whatever a
// trap printed.
func (d dialect) report(token string, seq int64) string {
	format, dir, more := `\0%s\0%s\0%s\0%s\0%s\0%s\0`, "", `; \command pwd || \command :; \command printf '\0'`
	if d.isBash { // one write is faster than three, and wakes the server once
		format, dir, more = format+`%s\0`, ` "${DIRSTACK[0]-}"`, ""
	}
	return d.call + "printf '" + format + "' " + reportHeader + token + " " + strconv.FormatInt(seq, 10) +
		` "${` + progressVar + `-}" "${!:-}" "$-" "${PATH-}"` + dir + more + "; " + d.resetPrompts() + "\n"
}

// ask has the shell report about command number seq again, where a signal or an
// error of the shell ended the command's line before the report.
// It is one line, because prompts come between lines.
func (d dialect) ask(token string, seq int64) string {
	return noteStatus + d.report(token, seq)
}

// noteStatus adds the last status to progressVar.
const noteStatus = progressVar + `="${` + progressVar + `-} $?"; `

// askAnew is ask for a shell that does not report: it removes functions that replace
// the builtins, and enables them again. It only uses builtins that no function can replace: in POSIX
// mode bash finds special builtins, such as unset, before functions, as the other
// shells always do.
func (d dialect) askAnew(token string, seq int64) string {
	free := `\unset -f command || \:; `
	if d.isBash {
		free = `actiond_posix=${POSIXLY_CORRECT-}; POSIXLY_CORRECT=y; \unset -f unset builtin enable command || \:; \trap - DEBUG || \:; ` +
			`\enable builtin eval printf pwd unset set declare alias test . : || \:; ` +
			`\builtin test -n "$actiond_posix" || \builtin unset -v POSIXLY_CORRECT; \builtin unset -v actiond_posix || \builtin :; `
	}
	return closeQuotes + noteStatus + free + d.report(token, seq)
}

// closeQuotes ends the quote that a line of the server's left open when a signal cut it in
// two. Whichever quote it is, one of the two lines closes it; to a shell without
// an open quote both are comments.
const closeQuotes = "\n# '\n# \"\n"

// save sends the state that a new shell needs to take over from this one.
func (d dialect) save(token string) string {
	parts := []string{"export -p", ":", ":"} // some print aliases as assignments, which would set variables
	if d.isBash {
		parts = []string{"declare -px", "declare -f", "alias -p"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `%sprintf '\0%s%s\0'`, d.call, stateHeader, token)
	for _, part := range parts {
		fmt.Fprintf(&b, `; %[1]s%[2]s || %[1]s:; %[1]sprintf '\0'`, d.call, part)
	}
	return b.String() + "\n"
}

// mayChangeState reports whether a command could change the state that save sends. In doubt it
// is true; a change of PATH is noticed without it.
func mayChangeState(text string) bool {
	for _, word := range []string{"=", "()", "alias", "unset", "function", "source", ". ", "eval", "export", "declare", "typeset", "readonly", "read "} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
