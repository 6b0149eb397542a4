package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/shellquote"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) runCommand() *cobra.Command {
	opts := execFlags{ephemeral: true}
	c := &cobra.Command{
		Use:   "run [flags] IMAGE -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a sandbox made for it",
		Long: `Run makes a sandbox, runs a command in it, shows its output as it comes, and
removes the sandbox again, also when it is interrupted. It takes the flags of
'create' and runs the command as 'exec' does.

With -it it connects your terminal to one of the command, which is a shell if you
name none.

The exit code is the command's; 124 after --timeout, 125 when the sandbox could
not be made or the command not brought to run, 126 when it cannot be run and 127
when it is not there.`,
		Example: `  runtimectl run python:3.13 -- python3 -c 'print(1)'
  runtimectl run --network none -v .:/workspace:ro golang:1.26 -- go vet ./...
  runtimectl run -it debian:bookworm
  runtimectl run --on local -- make test`,
		Annotations:       map[string]string{command.RunsCommands: "yes"},
		ValidArgsFunction: p.CompleteImage,
	}
	var pool string
	flags := platform.AddSpec(c)
	p.AddPool(c, &pool)
	opts.add(c)
	p.AddServer(c)
	p.AddCreation(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		image, words, err := splitCommand(cmd, args, p.Local)
		switch {
		case err != nil || len(words) > 0:
		case opts.tty && opts.feed && (p.Local || image != ""):
			words = someShell
		default:
			err = missingCommand(cmd)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		spec, err := flags.Spec(&p.Platform, image)
		if err != nil {
			return command.Usage(cmd, err)
		}
		if err := opts.prepare(p.Getenv); err != nil {
			return command.Usage(cmd, err)
		}
		input, err := p.spool(cmd, opts)
		if err != nil {
			return err
		}
		defer input.close()
		if spec.Idle == 0 && pool == "" { // a pool's have the limits of the pool
			spec.Idle = orphanIdle
		}
		return p.Make(cmd.Context(), spec, pool, func(driver sandbox.Driver, s *sandbox.Sandbox) (err error) {
			defer func() { err = p.RemoveAfter(cmd.Context(), driver, s, err) }()
			err = p.performHinted(cmd.Context(), s, words, opts, input)
			if failed, ok := errors.AsType[*command.ExitError](err); ok && failed.Code == command.ExitAbsent && p.Local && image == "" && cmd.Flags().ArgsLenAtDash() != 0 {
				_, _ = fmt.Fprintf(p.Stderr, "note: with --on local there are no images, and %q was the command\n", words[0])
			}
			return platform.Ended(cmd.Context(), driver, s, err)
		})
	}
	return c
}

// someShell is the best shell of any image.
var someShell = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}

// performHinted is perform, with a hint after a command that failed for want of root.
func (p *program) performHinted(
	ctx context.Context, s *sandbox.Sandbox, words []string, opts execFlags, input *spool,
) error {
	err := p.perform(ctx, s, words, opts, input)
	if failed, ok := errors.AsType[*command.ExitError](err); ok && failed.Code == command.ExitAbsent && len(words) == 1 && strings.ContainsAny(words[0], " \t\n") {
		_, _ = fmt.Fprintf(p.Stderr, "note: no shell splits this one word; write: sh -c %s\n", shellquote.Word(words[0]))
	}
	if failed, ok := errors.AsType[*command.ExitError](err); ok && failed.Code < command.ExitTimeout && opts.user == "" { // it ran, and ended by itself
		p.HintRoot(s, failed.Said)
	}
	return err
}

// orphanIdle ends a sandbox of run whose runtimectl was killed: with the command
// all work in it is over.
const orphanIdle = 5 * time.Minute
