// Runtimectl is the controller's side of Actiond: it makes and drives the
// sandboxes in which agents act.
//
// Data goes to standard output and nothing else does; notes, progress and
// errors go to standard error. exit.go has the exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/actiond/actiond/sandbox"
)

// program is what a command has of the world outside.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	place placeFlags // of the command line
}

func main() {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	// A reader that goes away is to be an error of a write, after which there is
	// still time to clean up. The channel is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// What libraries log, net/http for one, may quote a sandbox. It is no part of
	// what this program says.
	log.SetOutput(io.Discard)
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// run carries out a command line, says on stderr what went wrong, and returns
// the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	command, err := p.execute(ctx, args)
	ended, isExit := errors.AsType[*exitError](err)
	switch {
	case err == nil, readerLeft(err):
	case !isExit:
		p.complain(err.Error())
	case ended.why != "":
		p.complain(ended.why)
	}
	if errors.Is(err, sandbox.ErrUnknown) && !isExit && command.Name() != "doctor" {
		_, _ = fmt.Fprintln(p.stderr, "Run 'runtimectl doctor' to see what is missing.")
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		_, _ = fmt.Fprintf(p.stderr, "Run '%s --help' for usage.\n", usage.command)
	}
	if command.Annotations[runsCommands] != "" && err != nil && !isExit && !readerLeft(err) {
		return exitOwn
	}
	return exitCode(err)
}
