package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDeps holds what is linked into the server: depguard sees what a package
// imports, and this what comes along with it.
func TestDeps(t *testing.T) {
	t.Parallel()
	const house = "github.com/actiond/actiond/"
	linked := deps(t)
	for _, pkg := range []string{house + "api", house + "executor/bash", house + "server", "github.com/creack/pty"} {
		if !slices.Contains(linked, pkg) {
			t.Errorf("%s is not linked: this test looks at the wrong program", pkg)
		}
	}
	for _, wall := range []struct{ prefix, reason string }{
		{house + "docker", "the server lives in a sandbox and has no engine"},
		{house + "server/gateway", "the controller is another program"},
		{house + "api/client", "the server answers and does not ask"},
		{house + "api/apitest", "the contract suite is for tests"},
		{house + "cmd/runtimectl", "the controller is another program"},
		{"github.com/docker/", "the server lives in a sandbox and has no engine"},
		{"github.com/containerd/", "the server lives in a sandbox and has no engine"},
		{"github.com/opencontainers/", "the server lives in a sandbox and has no engine"},
		{"github.com/spf13/", "the server has package flag"},
		{"github.com/santhosh-tekuri/jsonschema", "schemas are for tests"},
		{"go.yaml.in/", "the specification is embedded as it is and read by tests"},
		{"github.com/prometheus/", "it brings protobuf, a seventh of the program; server/metric writes the formats"},
		{"google.golang.org/protobuf", "nothing that is spoken here needs it"},
		{"html/template", "text/template is in it"},
		{"text/template", "it calls methods by name, so that the linker keeps all of them: another 1.6 MB"},
		{"testing", "tests are not shipped"},
		{"net/http/pprof", "it registers handlers that nobody asked for"},
	} {
		for _, pkg := range linked {
			if strings.HasPrefix(pkg+"/", wall.prefix) {
				t.Errorf("%s is linked: %s", pkg, wall.reason)
			}
		}
	}
}

// deps returns the import paths of all packages of the program in this
// directory, built as it is shipped.
func deps(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing what is linked: %v", err)
	}
	return strings.Fields(string(out))
}
