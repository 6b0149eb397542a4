package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is missing, and which protection is there",
		Long: `Doctor looks at what sandboxes need on this machine: the server's program, the
state directory, the engine. It says what is missing and what to do about it, and
what of the protection that is promised this engine does not give, or could give
on top.

It changes nothing without --restart-egress. The exit code is 0 when sandboxes can be made, 4 without
access to the engine, 6 without an engine, and 1 when something else is missing.`,
		Example: `  runtimectl doctor
  runtimectl doctor -o json | jq -r '.[] | select(.status != "ok") | .text'`,
		Args: command.NoArgs,
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	p.AddServer(c)
	var restart bool
	c.Flags().BoolVar(&restart, "restart-egress", false, "before, replace the egress proxy by one of this version, which ends the connections\nof sandboxes with network policies")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var report checkup
		if restart {
			if err := p.restartEgress(cmd.Context()); err != nil {
				return err
			}
		}
		missing := errors.Join(p.checkServer(&report), p.checkPlace(cmd.Context(), &report))
		if err := p.Print(format, report); err != nil {
			return err
		}
		if i := slices.IndexFunc(report, func(f finding) bool { return f.Status == "missing" }); i >= 0 && missing == nil {
			missing = errors.New("missing: " + report[i].Text)
		}
		return missing
	}
	return c
}

// servers are the changes for In that name the programs of sandboxes, none where there are none.
func (p *program) servers() []func(*platform.Options) {
	change, err := p.WithServers()
	if err != nil {
		return nil
	}
	return []func(*platform.Options){change}
}

// restartEgress replaces the egress proxy.
func (p *program) restartEgress(ctx context.Context) error {
	return p.In(func(driver sandbox.Driver) error {
		return sandbox.With(driver, "keep network policies",
			func(able sandbox.Networker) error { return able.RestartEgress(ctx) })
	}, p.servers()...)
}

type finding = sandbox.Finding

// checkup is the output of doctor.
type checkup []finding

func add(c *checkup, status, about, text, so string) {
	*c = append(*c, finding{Status: status, About: about, Text: text, So: so})
}

// Folds lets the last column continue on further lines.
func (checkup) Folds() {}

func (c checkup) Table() [][]string {
	var rows [][]string
	for _, f := range c {
		rows = append(rows, []string{f.Status, f.About, f.Text})
		if f.So != "" {
			rows = append(rows, []string{"", "", "  " + f.So})
		}
	}
	return rows
}

// checkServer looks for the program that is put into sandboxes.
func (p *program) checkServer(report *checkup) error {
	change, err := p.WithServers()
	if err != nil {
		add(report, "missing", "server", "there is no program to put into sandboxes", err.Error())
		return fmt.Errorf("the server is missing: %w", err)
	}
	if p.Kubernetes {
		return nil // the driver says whether it has an image
	}
	var o platform.Options
	change(&o)
	archs := slices.Sorted(maps.Keys(o.Servers))
	add(report, "ok", "server", fmt.Sprintf("%s, for images of %s", o.Servers[archs[0]], strings.Join(archs, " and ")), "")
	return nil
}

// checkPlace looks at where the sandboxes are.
func (p *program) checkPlace(ctx context.Context, report *checkup) error {
	err := p.In(func(driver sandbox.Driver) error {
		if doctor, ok := driver.(sandbox.Doctor); ok {
			found, err := doctor.Examine(ctx)
			*report = append(*report, found...)
			if err != nil {
				return err
			}
		}
		return p.checkSandboxes(ctx, driver, report)
	}, p.servers()...)
	known := slices.ContainsFunc(*report, func(f finding) bool { return f.Status == "missing" && f.About != "server" })
	if err != nil && !known {
		add(report, "missing", "host", err.Error(), "")
	}
	return err
}

// checkSandboxes counts the sandboxes, and the objects that 'prune' would remove.
func (p *program) checkSandboxes(ctx context.Context, driver sandbox.Driver, report *checkup) error {
	all, err := driver.List(ctx)
	if err != nil {
		return err
	}
	add(report, "ok", "sandboxes", fmt.Sprintf("%d are there", len(all)), "")
	pruner, ok := driver.(sandbox.Pruner)
	if !ok {
		return nil
	}
	leftovers, err := pruner.Prune(ctx, true)
	if err != nil {
		return err
	}
	if len(leftovers) > 0 {
		add(report, "note", "sandboxes", fmt.Sprintf("%d are over, or were left half done", len(leftovers)),
			"'runtimectl prune' removes them")
	}
	return nil
}
