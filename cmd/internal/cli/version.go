package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
)

func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  command.NoArgs,

		Annotations: map[string]string{command.NoSandboxes: "yes"},
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(p.Stdout, p.versionLine())
			return err
		},
	}
}

// versionLine is what the command prints, and --version, which people try first.
func (p *program) versionLine() string {
	return fmt.Sprintf("actiond runtimectl %s %s/%s\n", p.Version, runtime.GOOS, runtime.GOARCH)
}

// version is the release, or what the module system knows of this build.
func version(release string) string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
