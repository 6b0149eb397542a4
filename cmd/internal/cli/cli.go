// Package cli is the command line of runtimectl: a table of commands, one file each.
//
// Data goes to standard output and nothing else does; notes, progress and
// errors go to standard error. Package command has the exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// program is what a command has of the world outside.
type program struct{ platform.Platform }

func newProgram(s output.Streams) *program { return &program{platform.Platform{Streams: s}} }

// Main carries out the command line of this process and returns the exit code.
func Main() int {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	// A reader that goes away is to be an error of a write, after which there is
	// still time to clean up. The channel is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// What libraries log, net/http for one, may quote a sandbox. It is no part of
	// what this program says.
	log.SetOutput(io.Discard)
	p := newProgram(output.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv})
	return p.run(ctx, os.Args[1:])
}

// said is what is said of an error: of a platform that cannot be reached not what was
// to be done there.
func said(err error) string {
	if unreachable, ok := errors.AsType[*sandbox.UnreachableError](err); ok {
		return unreachable.Error()
	}
	return err.Error()
}

// run carries out a command line, says on stderr what went wrong, and returns
// the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	called, err := p.execute(ctx, args)
	ended, isExit := errors.AsType[*command.ExitError](err)
	switch {
	case err == nil, command.ReaderLeft(err):
	case !isExit:
		p.Complain(said(err))
	case ended.Why != "":
		p.Complain(ended.Why)
	}
	if errors.Is(err, sandbox.ErrUnknown) && !isExit && called.Name() != "doctor" {
		_, _ = fmt.Fprintln(p.Stderr, "Run 'runtimectl doctor' to see what is missing.")
	}
	if usage, ok := errors.AsType[*command.UsageError](err); ok {
		_, _ = fmt.Fprintf(p.Stderr, "Run '%s --help' for usage.\n", usage.Command)
	}
	if called.Annotations[command.RunsCommands] != "" && err != nil && !isExit && !command.ReaderLeft(err) {
		return command.ExitOwn
	}
	return command.ExitCode(err)
}
