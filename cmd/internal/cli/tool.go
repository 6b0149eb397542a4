package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
)

// tool has the commands about the tools of models.
func (p *program) tool() *cobra.Command {
	c := &cobra.Command{
		Use:   "tool",
		Short: "Call the tools that models were trained on",
		Long: `Tool lists the tools of a sandbox as a model sees them, and calls them as a model
does. A dialect is a family of tool names and arguments: ` + strings.Join(tools.Dialects(), ", ") + `.`,
	}
	c.AddCommand(p.toolLs(), p.toolCall())
	return c
}

// addDialect adds the flag that chooses a dialect.
func addDialect(c *cobra.Command, dialect *string) {
	c.Flags().StringVarP(dialect, "dialect", "d", tools.Default, "the `FAMILY` of tools (see tool --help)")
	_ = c.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions(tools.Dialects(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.PreRunE = func(*cobra.Command, []string) error { return tools.CheckDialect(*dialect) }
}

func (p *program) toolLs() *cobra.Command {
	var dialect, target string
	c := &cobra.Command{
		Use:   "ls [flags] SANDBOX",
		Short: "List the tools of a sandbox",
		Long: `Ls lists the tools of a dialect that a sandbox has: one whose image has no Python has
no notebook. With --for it prints their definitions as a model API takes them.`,
		Example: `  runtimectl tool ls build
  runtimectl tool ls --dialect anthropic --for anthropic build > tools.json`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	addDialect(c, &dialect)
	known := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := tools.CheckFormat(target); err != nil {
			return fmt.Errorf("--for: %w", err)
		}
		return known(cmd, args)
	}
	c.Flags().StringVar(&target, "for", "", "print JSON for this model `API`: "+strings.Join(tools.Formats, ", "))
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(tools.Formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			if target != "" {
				tools, err := c.Tools(cmd.Context(), dialect, target)
				if err != nil {
					return err
				}
				return output.WriteJSON(p.Stdout, output.Document(tools), "  ")
			}
			tools, err := c.Tools(cmd.Context(), dialect, "mcp")
			if err != nil {
				return err
			}
			var list toolTable
			if err := json.Unmarshal(tools, &list); err != nil {
				return fmt.Errorf("reading the list of tools: %w", err)
			}
			return output.WriteTable(p.Stdout, list.Table(), p.WindowWidth())
		})
	}
	return c
}

// toolTable is a list of tools to be printed.
type toolTable []struct {
	Name, Description string
	InputSchema       struct{ Required []string }
}

func (list toolTable) Table() [][]string {
	rows := [][]string{{"NAME", "REQUIRED", "DESCRIPTION"}}
	for _, t := range list {
		first, _, _ := strings.Cut(t.Description, ". ")
		rows = append(rows, []string{t.Name, strings.Join(t.InputSchema.Required, ","), strings.TrimSuffix(first, ".")})
	}
	return rows
}

// toolNames are the tools of a dialect whose names begin so, whatever a sandbox
// lacks.
func toolNames(dialect, begun string) (found []cobra.Completion) {
	for _, t := range tools.Definitions(dialect, func(string) bool { return true }) {
		if strings.HasPrefix(t.Name, begun) {
			first, _, _ := strings.Cut(t.Description, ". ")
			found = append(found, cobra.CompletionWithDesc(t.Name, first))
		}
	}
	return found
}

func (p *program) toolCall() *cobra.Command {
	var dialect, session, file string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "call [flags] SANDBOX NAME [ARGUMENTS]",
		Short: "Call a tool as a model does, and print what the model gets",
		Long: `Call sends a tool call to a sandbox and prints the answer: an observation with
is_error, and error_code where something is wrong. The arguments are a JSON
object, as an argument, from a file, or from standard input where neither is given
or the argument is "-". They are sent as they are: what is wrong with them is for
the sandbox to say, as to a model.

It exits with 0 when is_error is false and nothing goes on, and otherwise as act does.`,
		Example: `  runtimectl tool call build execute_bash '{"command": "uname -a"}'
  runtimectl tool call -d gemini build read_file '{"file_path": "go.mod"}' |
    jq -r .content`,
		Args: command.ArgRange(2, 3),
	}
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return toolNames(dialect, begun), cobra.ShellCompDirectiveNoFileComp
		}
		return p.CompleteSandboxes(1, platform.Running...)(cmd, args, begun)
	}
	addDialect(c, &dialect)
	known := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		if file != "" && len(args) > 2 {
			return errors.New("the arguments are given here or in a file, not both")
		}
		return known(cmd, args)
	}
	c.Flags().StringVarP(&file, "file", "f", "", "read the arguments from this `FILE`")
	c.Flags().StringVar(&session, "session", "",
		"run in the persistent shell `NAME` (default: the one of calls that name none)")
	command.AddDuration(c.Flags(), &timeout, "timeout", "", 0,
		"wait at most this long, such as 90s; what runs goes on (default: no limit)")
	format := output.AddFormat(c, "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		arguments, err := p.Input(file, args[2:])
		if err != nil {
			return err
		}
		call := api.ToolCall{Dialect: dialect, Name: args[1], Arguments: string(bytes.TrimSpace(arguments)), Session: session}
		if cmd.Flags().Changed("timeout") {
			call.Timeout = new(timeout.Seconds())
		}
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			answer, err := c.CallTool(cmd.Context(), call)
			if err != nil {
				return err
			}
			data, err := api.EncodeToolAnswer(answer)
			if err != nil {
				return err
			}
			if err := p.Print(format, output.Document(data)); err != nil {
				return err
			}
			return actionEnd(answer.Observation)
		})
	}
	return c
}
