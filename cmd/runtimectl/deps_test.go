package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDeps holds what is linked into the CLI: depguard sees what a package
// imports, and this what comes along with it.
func TestDeps(t *testing.T) {
	t.Parallel()
	const house = "github.com/actiond/actiond/"
	linked := deps(t)
	// HTTP ends in these.
	gateway := []string{house + "server/gateway", house + "server/bound", house + "server/metric", house + "server/reply", house + "server/router"}
	for _, pkg := range append(gateway, house+"api", "github.com/spf13/cobra") {
		if !slices.Contains(linked, pkg) {
			t.Errorf("%s is not linked: this test looks at the wrong program", pkg)
		}
	}
	for _, wall := range []struct{ prefix, reason string }{
		{house + "executor", "actions are carried out in the sandbox"},
		{house + "server/", "the server is another program"},
		{house + "cmd/server", "the server is another program"},
		{house + "docker/dockertest", "the engine without containers is for tests"},
		{house + "api/apitest", "the contract suite is for tests"},
		{"github.com/creack/pty", "terminals live in the sandbox"},
		{"github.com/sergi/go-diff", "diffs are made in the sandbox and come with the observation"},
		{"mvdan.cc/sh", "commands are looked at in the sandbox"},
		{"github.com/santhosh-tekuri/jsonschema", "schemas are for tests"},
		{"github.com/prometheus/", "server/metric writes the formats"},
		{"testing", "tests are not shipped"},
		{"net/http/pprof", "it registers handlers that nobody asked for"},
	} {
		for _, pkg := range linked {
			if strings.HasPrefix(pkg+"/", wall.prefix) && !slices.Contains(gateway, pkg) {
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
