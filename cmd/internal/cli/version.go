package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

func (p *program) version() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  command.NoArgs,

		Annotations: map[string]string{command.NoSandboxes: "yes"},
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(*cobra.Command, []string) error {
		return p.Print(format, programVersion{p.Version, runtime.GOOS, runtime.GOARCH, runtime.Version(), p.versionLine()})
	}
	return c
}

// programVersion is the output of version.
type programVersion struct {
	Version   string `json:"version"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	GoVersion string `json:"go_version"`
	line      string
}

// Table is the line that a person reads.
func (v programVersion) Table() [][]string { return [][]string{{strings.TrimSpace(v.line)}} }

// versionLine is the output of the command, and of --version, which people try first.
func (p *program) versionLine() string {
	return fmt.Sprintf("actiond runtimectl %s %s/%s\n", p.Version, runtime.GOOS, runtime.GOARCH)
}

// version is the release, or the module version of this build.
func version(release string) string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
