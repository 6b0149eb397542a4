package cli

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// plainFields fits templates that print fields which are known without asking servers.
var plainFields = regexp.MustCompile(`^([^{]|\{\{\s*\.(ID|Name|Owner|Image|Created|Pool|User)\s*\}\})+$`)

// printTemplate prints each sandbox by a template of Go.
func (p *program) printTemplate(cmd *cobra.Command, text string, list sandboxList) error {
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return command.Usage(cmd, fmt.Errorf("--format: %w", err))
	}
	for _, s := range list {
		var b strings.Builder
		if err := t.Execute(&b, s); err != nil {
			return command.Usage(cmd, fmt.Errorf("--format: %w; the fields are %s", err, strings.Join(fieldNames(s), ", ")))
		}
		if _, err := fmt.Fprintln(p.Stdout, output.Clean(b.String())); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return nil
}

func fieldNames(s sandboxInfo) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(s)) {
		names = append(names, "."+f.Name)
	}
	return names
}
