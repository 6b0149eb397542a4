// Package bash keeps a persistent shell that cannot be wedged: it runs
// commands, answers when they end or fall silent, and survives whatever they
// do to it. It knows terminals, processes and bytes, and nothing of actions.
//
// # How a command runs
//
// The shell is interactive and reads its script from a pipe, one line at a
// time. The server writes two lines for a command: the first evaluates the
// text, quoted, with the terminal as its standard files; the second reports
// the status, the directory and what else the server wants to know on a second
// pipe. Nothing is typed, so nothing is echoed, completed, expanded by history
// or cut; and nothing that a command prints can be taken for its end.
//
// A signal that interrupts the first line leaves the second one standing, so a
// status always comes. Between commands the shell's own standard output and
// error lead nowhere, so neither prompts nor traces of the server's lines
// reach the terminal, and whatever a command did to its own standard files is
// undone when it ends.
//
// # What is drained when
//
// When a status arrives, everything that was written before it already lies in
// the terminal: one non-blocking read after another until the kernel says
// there is no more gives all of it. What a background job writes later belongs
// to the log of the session and to no command.
package bash
