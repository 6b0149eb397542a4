package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) ls() *cobra.Command {
	var quiet bool
	var chosen sandbox.Filter
	var template string
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"ps"},
		Short:   "List the sandboxes",
		Long: `Ls lists the sandboxes of this controller, the eldest first, stopped ones and
those that wait in a warm pool included.

States are pending, creating, starting, ready, busy (an action runs), idle (none
does), paused, stopped, unknown (its node does not report) and gone. A sandbox
whose server does not answer within a second is ready at best.`,
		Example: `  runtimectl ls
  runtimectl ls --filter owner=me --filter label=team=a --format '{{.Name}}'
  runtimectl ls -o json | jq -r '.[] | select(.state == "idle") | .id'
  runtimectl rm $(runtimectl ls -q)`,
		Args: command.NoArgs,
	}
	c.Flags().StringArrayVar((*[]string)(&chosen), "filter", nil,
		"list those that fit `NAME=VALUE`; names are "+strings.Join(sandbox.FilterNames, ", "))
	c.Flags().StringVar(&template, "format", "", "print each by this `TEMPLATE` of Go, such as '{{.ID}} {{.Owner}}'")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := chosen.Check(); err != nil {
			return command.Usage(cmd, err)
		}
		return p.In(func(driver sandbox.Driver) error {
			all, err := driver.List(cmd.Context())
			if err != nil {
				return err
			}
			states, rest := chosen.Split()
			all = slices.DeleteFunc(all, func(s *sandbox.Sandbox) bool { return !rest.Fits(s) })
			if states != nil || !quiet && !plainFields.MatchString(template) {
				platform.AskHow(cmd.Context(), driver, all)
			}
			all = slices.DeleteFunc(all, func(s *sandbox.Sandbox) bool { return !states.Fits(s) })
			if quiet {
				return p.printIDs(all)
			}
			list := make(sandboxList, len(all))
			for i, s := range all {
				list[i] = describe(s)
			}
			if template != "" {
				return p.printTemplate(cmd, template, list)
			}
			return p.Print(format, list)
		})
	}
	return c
}

func (p *program) printIDs(all []*sandbox.Sandbox) error {
	for _, s := range all {
		if _, err := fmt.Fprintln(p.Stdout, s.ID); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return nil
}

// sandboxInfo is a sandbox in the output. Its members are those of [api.Sandbox],
// where that has them; --format has their names in Go.
type sandboxInfo struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	Owner            string            `json:"owner"`
	Image            string            `json:"image"`
	State            sandbox.State     `json:"state"`
	Detail           string            `json:"detail,omitempty"`
	Created          time.Time         `json:"created"`
	Deadline         *time.Time        `json:"deadline"`
	IdleLimitSeconds int               `json:"idle_limit_seconds"`
	Pool             string            `json:"pool,omitempty"`
	User             string            `json:"user"`
	AllowRoot        bool              `json:"allow_root,omitempty"`
	GPUs             string            `json:"gpus,omitzero"`
	Labels           map[string]string `json:"labels"`
}

func describe(s *sandbox.Sandbox) sandboxInfo {
	info := sandboxInfo{
		ID: s.ID, Name: s.Name, Owner: s.Owner, Image: s.Image, State: s.State, Detail: s.Detail, Created: s.Created,
		IdleLimitSeconds: sandbox.WholeSeconds(s.IdleLimit), Pool: s.Pool, User: s.User, AllowRoot: s.AllowRoot, GPUs: s.GPUs.String(), Labels: s.Labels,
	}
	if info.Labels == nil {
		info.Labels = map[string]string{}
	}
	if !s.Deadline.IsZero() {
		info.Deadline = &s.Deadline
	}
	return info
}

// sandboxList is the output of ls.
type sandboxList []sandboxInfo

func (l sandboxList) Table() [][]string {
	rows := [][]string{{"SANDBOX", "NAME", "IMAGE", "STATE", "AGE", "ENDS IN", "POOL", "OWNER"}}
	for _, s := range l {
		ends := "-"
		if s.Deadline != nil {
			ends = "time is over"
			if left := time.Until(*s.Deadline); left > 0 {
				ends = output.Span(left)
			}
		}
		rows = append(rows, []string{s.ID, s.Name, s.Image, string(s.State), output.Span(time.Since(s.Created)), ends, output.OrDash(s.Pool), output.OrDash(s.Owner)})
	}
	return rows
}
