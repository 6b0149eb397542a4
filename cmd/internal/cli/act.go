package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

func (p *program) act() *cobra.Command {
	var file string
	var changes bool
	c := &cobra.Command{
		Use:   "act [flags] SANDBOX [ACTION]",
		Short: "Send an action as JSON and print the observation",
		Long: `Act sends one action to a sandbox and prints its observation. The action is JSON,
as an argument, from a file, or from standard input where neither is given or the
argument is "-". It is what /execute_action takes, {"action": {...}}, or just
the object inside; /openapi.yaml describes all of them.

It exits with 0 when the action succeeded, and otherwise as follow does: with the exit
code of its command, 124 while that goes on, or 1.`,
		Example: `  runtimectl act build '{"action": "run", "args": {"command": "uname -a"}}'
  runtimectl act build --file edit.json -o yaml
  echo '{"action": "read", "args": {"path": "go.mod"}}' |
    runtimectl act build | jq -r .content`,
		Args: command.ArgRange(1, 2),
	}
	c.Flags().StringVarP(&file, "file", "f", "", "read the action from this `FILE`")
	c.Flags().BoolVar(&changes, "changes", false, "also print which files of the workspace it changed")
	format := output.AddFormat(c, "json", "yaml")
	c.ValidArgsFunction = p.CompleteSandboxes(1, platform.Running...)
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		if file != "" && len(args) > 1 {
			return errors.New("the action is an argument or in a file, not both")
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := p.Input(file, args[1:])
		if err != nil {
			return err
		}
		request, err := decodeAction(data)
		if err != nil {
			return command.Usage(cmd, err)
		}
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			if changes {
				request.Changes = cmp.Or(request.Changes, api.ChangesFacts)
			}
			o, data, err := act(cmd.Context(), c, request)
			if err != nil {
				return err
			}
			if err := p.Print(format, output.Document(data)); err != nil {
				return err
			}
			return actionEnd(o)
		})
	}
	return c
}

// act carries out an action, and returns its observation, and that as JSON with its changes if these are asked for.
func act(ctx context.Context, c *client.Client, request api.Request) (o api.Observation, data []byte, err error) {
	var changes *api.Changes
	if request.Changes == "" {
		o, err = c.Do(ctx, request)
	} else {
		o, changes, err = c.DoWithChanges(ctx, request)
	}
	if err == nil {
		data, err = withChanges(o, changes)
	}
	return o, data, err
}

// decodeAction reads a request, or an action without its envelope.
func decodeAction(data []byte) (api.Request, error) {
	var outer struct {
		Action json.RawMessage `json:"action"`
	}
	if json.Unmarshal(data, &outer) == nil && bytes.HasPrefix(bytes.TrimSpace(outer.Action), []byte(`"`)) {
		data = append(append([]byte(`{"action": `), data...), '}')
	}
	request, err := api.DecodeNative(data)
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Errors != "" {
		return request, fmt.Errorf("%s: %s", refused.Detail, refused.Errors)
	}
	return request, err
}
