package testhelp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Build builds programs of this module into a directory that exists, or one program as a file. Go's test cache sees no
// subprocess, so Build looks at the sources itself: after a change of one the test runs again.
func Build(ctx context.Context, to string, packages ...string) error {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-f", `{{if .Module}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`}, packages...)...)
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", to}, packages...)...)
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Env = list.Env
	sources, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the sources of %v: %w", packages, err)
	}
	for source := range strings.Lines(string(sources)) {
		_, _ = os.Stat(strings.TrimSpace(source)) // the build reads it
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %v: %w\n%s", packages, err, out)
	}
	return nil
}
