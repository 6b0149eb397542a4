package main

import (
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/runtimectl/internal/command"
	"github.com/actiond/actiond/cmd/runtimectl/internal/output"
	"github.com/actiond/actiond/sandbox"
)

// filterNames are what --filter compares.
var filterNames = []string{"id", "name", "owner", "image", "state", "pool", "label"}

// filters choose sandboxes that fit all of them.
type filters []string

// check returns what is wrong with them.
func (f filters) check() error {
	for _, text := range f {
		name, value, both := strings.Cut(text, "=")
		if !slices.Contains(filterNames, name) || !both || value == "" {
			return fmt.Errorf("--filter %q: write NAME=VALUE; names are %s", text, strings.Join(filterNames, ", "))
		}
	}
	return nil
}

// fits tells whether a sandbox is wanted. A label is compared as NAME or NAME=VALUE.
func (f filters) fits(s *sandbox.Sandbox) bool {
	for _, text := range f {
		name, want, _ := strings.Cut(text, "=")
		has := map[string]string{
			"id": s.ID, "name": s.Name, "owner": s.Owner, "image": s.Image, "state": string(s.State), "pool": s.Pool,
		}[name]
		if name == "label" {
			label, value, both := strings.Cut(want, "=")
			got, there := s.Labels[label]
			if !there || both && got != value {
				return false
			}
			continue
		}
		if has != want {
			return false
		}
	}
	return true
}

// printTemplate prints each sandbox by a template of Go.
func (p *program) printTemplate(cmd *cobra.Command, text string, list sandboxList) error {
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return command.Usage(cmd, fmt.Errorf("--format: %w", err))
	}
	for _, s := range list {
		var b strings.Builder
		if err := t.Execute(&b, s); err != nil {
			return command.Usage(cmd, fmt.Errorf("--format: %w", err))
		}
		if _, err := fmt.Fprintln(p.Stdout, output.Clean(b.String())); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return nil
}
