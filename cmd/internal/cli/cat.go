package cli

import (
	"archive/tar"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/transfer"
	"github.com/actiond/actiond/sandbox"
)

// completeFile completes a sandbox, and paths in it.
func (p *program) completeFile(
	cmd *cobra.Command, args []string, begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return p.CompleteSandboxes(1)(cmd, args, begun)
	}
	return p.CompletePaths(cmd, args, begun)
}

func (p *program) cat() *cobra.Command {
	c := &cobra.Command{
		Use:   "cat SANDBOX PATH...",
		Short: "Write files of a sandbox to standard output",
		Long: `Cat writes files of a sandbox to standard output, byte for byte, whether it runs or
not. A path that is not absolute begins where the sandbox's shells start.`,
		Example:           `  runtimectl cat build dist/report.json | jq .`,
		Args:              command.ArgRange(2, command.Many),
		ValidArgsFunction: p.completeFile,
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.OnFiles(cmd.Context(), args[0], func(files sandbox.Files, s *sandbox.Sandbox) error {
			var failures []error
			for _, path := range args[1:] {
				failures = append(failures, transfer.ReadFile(cmd.Context(), files, s, path, func(_ *tar.Header, content io.Reader) error {
					_, err := io.Copy(p.Stdout, content)
					return err
				}))
			}
			return errors.Join(failures...)
		})
	}
	return c
}
