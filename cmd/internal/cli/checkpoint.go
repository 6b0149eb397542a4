package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) checkpoint() *cobra.Command {
	var verify, list bool
	var remove string
	var wait, expires time.Duration
	c := &cobra.Command{
		Use:   "checkpoint [flags] SANDBOX [NAME]",
		Short: "Give the present state of the workspace a name",
		Long: `Checkpoint gives the present state of a sandbox's workspace a name, and prints that.
'restore' goes back there, and 'diff' shows what changed since. Without NAME it is the
time. Other states are kept as long as there is room; a checkpoint's is kept until the
checkpoint is removed.

It waits for contents that are still to be kept, and says how many files are missing all
the same, which a restore would refuse. With --list it lists the checkpoints, the oldest
first, and with --remove it removes one.`,
		Example: `  runtimectl checkpoint build before-refactoring
  runtimectl restore build "$(runtimectl checkpoint build)"
  runtimectl checkpoint --list build
  runtimectl checkpoint --remove before-refactoring build`,
		Args:              command.ArgRange(1, 2),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	c.Flags().BoolVar(&verify, "verify", false, "look at every file before, which finds also what no event tells of")
	command.AddDuration(c.Flags(), &wait, "wait", "", time.Minute, "how long to wait for contents, at most 10m")
	command.AddDuration(c.Flags(), &expires, "expires", "", 0, "for so long it goes last where there is no room; then it makes room for other checkpoints")
	c.Flags().BoolVarP(&list, "list", "l", false, "list the checkpoints")
	c.Flags().StringVar(&remove, "remove", "", "remove the checkpoint `NAME`")
	_ = c.RegisterFlagCompletionFunc("remove", p.CompleteCheckpoints) // the flag is there
	format := output.AddFormat(c, "table", "json", "yaml")
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case remove == "" && cmd.Flags().Changed("remove"):
			return errors.New("--remove needs the name of a checkpoint")
		case (list || remove != "") && (len(args) > 1 || verify || cmd.Flags().Changed("wait") || expires != 0), list && remove != "":
			return errors.New("--list and --remove stand alone, without a name, --verify, --wait or --expires")
		case len(args) > 1 && api.CheckCheckpointName(args[1]) != nil:
			return fmt.Errorf("the name of a checkpoint %w", api.CheckCheckpointName(args[1]))
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			switch {
			case list:
				all, err := c.Checkpoints(cmd.Context())
				if err != nil {
					return err
				}
				return p.Print(format, append(checkpointList{}, all...)) // none is an empty list in JSON
			case remove != "":
				return c.RemoveCheckpoint(cmd.Context(), remove)
			}
			request := api.CheckpointRequest{Name: time.Now().Format("2006-01-02T15:04:05"), Verify: verify, Wait: new(wait.Seconds()), Expires: expires.Seconds()}
			if len(args) > 1 {
				request.Name = args[1]
			}
			made, err := c.Checkpoint(cmd.Context(), request)
			if err != nil {
				return err
			}
			return p.printCheckpoint(format, &made)
		})
	}
	return c
}

func (p *program) printCheckpoint(format *output.Format, made *api.Checkpoint) error {
	if format.Value != "table" {
		return p.Print(format, oneCheckpoint(*made))
	}
	if made.Missing > 0 {
		_, _ = fmt.Fprintf(p.Stderr, "a restore would refuse %s, whose contents are not kept:\n", count(made.Missing, "file", "files"))
		for _, path := range made.MissingPaths {
			_, _ = fmt.Fprintf(p.Stderr, "  %s\n", output.Clean(string(path)))
		}
	}
	_, err := fmt.Fprintln(p.Stdout, output.Clean(made.Name))
	return err
}

// checkpointList is the output of checkpoint --list.
type checkpointList []api.Checkpoint

func (l checkpointList) Table() [][]string {
	rows := [][]string{{"NAME", "STATE", "MADE", "MISSING"}}
	for _, c := range l {
		rows = append(rows, []string{c.Name, c.State, output.ShortStamp(c.Time, time.Now()), strconv.Itoa(c.Missing)})
	}
	return rows
}

// oneCheckpoint is the output of checkpoint.
type oneCheckpoint api.Checkpoint

func (c oneCheckpoint) Table() [][]string { return checkpointList{api.Checkpoint(c)}.Table() }
