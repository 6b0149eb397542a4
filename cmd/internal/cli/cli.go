// Package cli is the command line of runtimectl: a table of commands, one file each.
//
// Data goes to standard output and nothing else does; notes, progress and
// errors go to standard error. Package command has the exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// program is the environment of a command: streams, variables, platform.
type program struct {
	platform.Platform

	terminal atomic.Pointer[ownTerminal] // which may be raw
}

func newProgram(s output.Streams) *program {
	return &program{Platform: platform.Platform{Streams: s, Version: version("")}}
}

// Main carries out the command line of this process and returns the exit code.
// release is the version if it is known, and kubernetes opens the driver of
// Kubernetes, nil in a program without it.
func Main(release string, kubernetes platform.OpenCluster) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endSignals...)
	p := newProgram(output.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv})
	ctx := interruptible(signals, func() { p.endBy(signals) })
	// A reader that goes away is to be an error of a write, after which there is
	// still time to clean up. The channel is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	p.Version, p.OpenCluster, p.Become = version(release), kubernetes, become
	p.Caller = os.Getenv(platform.CallerVariable)
	_ = os.Unsetenv(platform.CallerVariable) // not for the programs that this one starts
	return p.run(ctx, os.Args[1:])
}

// Command is the command line of runtimectl, for documents about it. It cannot be run.
func Command(release string) *cobra.Command {
	p := newProgram(output.Streams{})
	p.Version = version(release)
	return p.root()
}

// become replaces this process by a program with the same arguments.
func become(program string, env ...string) error {
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), append(os.Environ(), env...)) //nolint:gosec // it is looked for where programs are installed
}

// errorText formats an error for the user; for an unreachable platform it omits the
// attempted operation.
func errorText(err error) string {
	if unreachable, ok := errors.AsType[*sandbox.UnreachableError](err); ok {
		return unreachable.Error()
	}
	text := err.Error()
	if failed, ok := errors.AsType[*client.StatusError](err); ok && failed.Detail != "" { // the status is for programs
		text = strings.Replace(text, fmt.Sprintf("%d %s: ", failed.Status, http.StatusText(failed.Status)), "", 1)
	}
	return text
}

// endSignals ask this program to end.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// sameSignal is how long signals after the first one are taken for the same one:
// timeout(1) signals its child, and then the group that the child is in.
const sameSignal = time.Second

// interruptible returns a context that ends with the first signal, and calls again once
// another one may end the program.
func interruptible(signals <-chan os.Signal, again func()) context.Context {
	ctx, interrupt := context.WithCancel(context.Background())
	go func() { // lives as long as the program
		<-signals
		interrupt()
		<-time.After(sameSignal)
		again()
	}()
	return ctx
}

// endBy has the next signal end the program at once, but not before the terminal is restored.
func (p *program) endBy(signals <-chan os.Signal) {
	select {
	case <-signals: // came with the first
	default:
	}
	last := <-signals
	p.terminal.Load().restore()
	signal.Reset(endSignals...)
	_ = syscall.Kill(os.Getpid(), last.(syscall.Signal)) // all are
}

// interrupted returns the end of a command that failed with err after it was interrupted.
func interrupted(err error) error {
	why := "interrupted"
	if !onlyCancelled(err) {
		why += ": " + errorText(err)
	}
	return &command.ExitError{Code: command.ExitInterrupted, Why: why}
}

// onlyCancelled reports whether err says nothing but that its context ended.
func onlyCancelled(err error) bool {
	switch wrapping := err.(type) { //nolint:errorlint // each error of the tree is looked at
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(wrapping.Unwrap(), func(part error) bool { return !onlyCancelled(part) })
	case interface{ Unwrap() error }:
		return onlyCancelled(wrapping.Unwrap())
	}
	return errors.Is(err, context.Canceled)
}

// run carries out a command line, prints an error to stderr, and returns the
// exit code.
func (p *program) run(ctx context.Context, args []string) int {
	called, err := p.execute(ctx, args)
	ended, isExit := errors.AsType[*command.ExitError](err)
	if err != nil && !isExit && ctx.Err() != nil && !command.ReaderLeft(err) {
		err = interrupted(err)
		ended, isExit = errors.AsType[*command.ExitError](err)
	}
	switch {
	case err == nil, command.ReaderLeft(err):
	case !isExit:
		p.Complain(errorText(err))
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
