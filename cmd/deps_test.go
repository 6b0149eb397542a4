package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/actiond/actiond/"

// boundary is a package that a program must not link.
type boundary struct{ prefix, reason string }

// ofController are the boundaries of the controller's programs.
var ofController = []boundary{
	{module + "executor", "actions are carried out in the sandbox"},
	{module + "server/", "the server is another program"},
	{module + "cmd/server", "the server is another program"},
	{module + "docker/dockertest", "the engine without containers is for tests"},
	{module + "sandbox/drivertest", "the suite of drivers is for tests"},
	{module + "api/contract", "the contract suite is for tests"},
	{"github.com/creack/pty", "terminals live in the sandbox"},
	{"github.com/sergi/go-diff", "diffs are made in the sandbox and come with the observation"},
	{"mvdan.cc/sh", "commands are looked at in the sandbox"},
	{"github.com/santhosh-tekuri/jsonschema", "schemas are for tests"},
	{"testing", "tests are not shipped"},
}

// TestDeps holds what is linked into the programs: depguard sees what a package
// imports, and this what comes along with it.
func TestDeps(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]struct {
		linked     []string
		open       []string // linked in spite of the boundaries
		boundaries []boundary
	}{
		"server": {
			linked: []string{module + "api", module + "executor/bash", module + "server", "github.com/creack/pty"},
			boundaries: []boundary{
				{module + "docker", "the server lives in a sandbox and has no engine"},
				{module + "gateway", "the controller is another program"},
				{module + "api/client", "the server answers and does not ask"},
				{module + "api/contract", "the contract suite is for tests"},
				{module + "cmd/internal", "the controller is another program"},
				{"github.com/docker/", "the server lives in a sandbox and has no engine"},
				{"k8s.io/", "the server lives in a sandbox and has no cluster"},
				{"github.com/containerd/", "the server lives in a sandbox and has no engine"},
				{"github.com/opencontainers/", "the server lives in a sandbox and has no engine"},
				{"github.com/spf13/", "the server has package flag"},
				{"github.com/santhosh-tekuri/jsonschema", "schemas are for tests"},
				{"go.yaml.in/", "the specification is embedded as it is and read by tests"},
				{"testing", "tests are not shipped"},
				{"runtime/pprof", "without it the runtime keeps no profile of the memory"},
				{"text/template", "with it the linker keeps all methods of all types"},
				{"github.com/xuri/", "its tables and regular expressions would be made at each start"},
			},
		},
		"../gateway": {
			linked: []string{module + "api", module + "sandbox"},
			open:   []string{module + "internal/httpserver"},
			boundaries: []boundary{
				{module + "docker", "the gateway works with every driver"},
				{module + "local", "the gateway works with every driver"},
				{"github.com/docker/docker", "the Docker API lives in docker"},
				{module + "kubernetes", "the gateway works with every driver"},
				{"k8s.io/", "the API of Kubernetes lives in kubernetes"},
			},
		},
		"runtimectl": {
			linked: []string{module + "api", module + "docker", "github.com/spf13/cobra"},
			open:   []string{module + "gateway", module + "internal/httpserver", module + "kubernetes/manifests"}, // HTTP ends in the first two
			boundaries: append([]boundary{
				{module + "kubernetes", "runtimectl-kubernetes has that driver"},
				{"k8s.io/", "runtimectl-kubernetes has that driver"},
				{"sigs.k8s.io/", "runtimectl-kubernetes has that driver"},
			}, ofController...),
		},
		"runtimectl-kubernetes": {
			linked:     []string{module + "api", module + "docker", module + "kubernetes", "github.com/spf13/cobra"},
			open:       []string{module + "gateway", module + "internal/httpserver"},
			boundaries: ofController,
		},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			linked := deps(t, program)
			for _, pkg := range slices.Concat(want.linked, want.open) {
				if !slices.Contains(linked, pkg) {
					t.Errorf("%s is not linked: this test looks at the wrong program", pkg)
				}
			}
			for _, boundary := range want.boundaries {
				for _, pkg := range linked {
					if strings.HasPrefix(pkg+"/", boundary.prefix) && !slices.Contains(want.open, pkg) {
						t.Errorf("%s is linked: %s", pkg, boundary.reason)
					}
				}
			}
		})
	}
}

// TestQuietLog: no program writes what a library logs.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 3 {
		t.Fatalf("found the programs %q, %v", programs, err)
	}
	for _, main := range programs {
		if !slices.Contains(deps(t, filepath.Dir(main)), module+"internal/quietlog") {
			t.Errorf("%s does not import internal/quietlog: net/http would log what it was sent", main)
		}
	}
}

// deps returns the import paths of all packages of a program, built as it is
// shipped.
func deps(t *testing.T, program string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+program)
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing what is linked: %v", err)
	}
	return strings.Fields(string(out))
}
