// Package bash keeps a persistent shell that no command can stop: it runs
// commands, answers when they end or fall silent, and goes on whatever they do to
// the shell. It knows terminals, processes and bytes, and no actions.
//
// # How a command runs
//
// The shell is interactive and reads its script from a pipe. The server writes
// one line for a command. It evaluates the text, quoted, with the terminal as its
// standard files, and then reports the status, the directory and other state on a
// second pipe, which is the shell's own standard output. Nothing is typed, so
// nothing is echoed, completed, cut or expanded by history; and no output of a
// command can be taken for its end.
//
// A variable of the shell says how far it got, so a report that a signal or an
// error of the shell prevented can be asked for again. A table in watch.go has
// the states of a shell that does not report, and when it is replaced.
//
// Between commands the shell's standard error leads nowhere, so neither prompts
// nor traces of the server's lines reach the terminal. Redirections by a command
// of its own standard files end with it, and the terminal's settings are restored
// before the next one.
//
// # Draining the output
//
// When a report arrives, everything that was written before it is in the
// terminal already: reads that do not block, until the kernel says that nothing is
// left, return all of it. Later output of a background job belongs to the log of
// the session and to no command.
package bash
