// Runtimectl is the controller's side of Actiond: it drives the sandboxes in
// which agents act.
//
// Data goes to standard output and nothing else does; notes and errors go to
// standard error. It exits with 0 when all went well, 2 when the command line
// cannot be understood, and 1 otherwise.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// program is what a command has of the world outside.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

func main() {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	// A reader that goes away is to be an error of a write, after which there is
	// still time to clean up. Nobody reads the channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// run carries out a command line, says on stderr what went wrong, and returns
// the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.execute(ctx, args)
	if err != nil {
		_, _ = fmt.Fprintf(p.stderr, "runtimectl: %v\n", err)
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		_, _ = fmt.Fprintf(p.stderr, "Run '%s --help' for usage.\n", usage.command)
	}
	return exitCode(err)
}

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(*usageError)):
		return 2
	default:
		return 1
	}
}
