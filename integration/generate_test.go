//go:build integration

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
)

// generator is pinned, as the tools of the Makefile are.
const generator = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

// generatedProgram uses a generated client as its user would: it builds a typed
// action and prints it as a request.
const generatedProgram = `package main

import (
	"encoding/json"
	"os"

	"generated/gateway"
	"generated/openapi"
)

func main() {
	var run openapi.RunAction
	run.Action = "run"
	run.Args.Command = "true"
	var action openapi.Action
	if err := action.FromRunAction(run); err != nil {
		panic(err)
	}
	if typed, err := action.ValueByDiscriminator(); err != nil || typed.(openapi.RunAction).Args.Command != "true" {
		panic("the discriminator does not lead to the type of the action")
	}
	var observation openapi.Observation
	if err := json.Unmarshal([]byte(os.Args[1]), &observation); err != nil {
		panic(err)
	}
	if typed, err := observation.ValueByDiscriminator(); err != nil || typed.(openapi.ErrorObservation).Content != "broken" {
		panic("the discriminator does not lead to the type of the observation")
	}
	if _, err := gateway.NewClientWithResponses("http://127.0.0.1"); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(openapi.ExecuteRequest{Action: action}); err != nil {
		panic(err)
	}
}
`

// Both descriptions generate Go clients that compile, and whose actions and
// observations are typed.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, description := range map[string][]byte{"openapi": api.OpenAPI, "gateway": api.GatewayOpenAPI} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+".yaml")
		testhelp.WriteFile(t, file, description, 0o644)
		goRun(t, dir, "run", generator, "-generate", "types,client,skip-prune", "-package", name, "-o", filepath.Join(name, "gen.go"), file)
	}
	testhelp.WriteFile(t, filepath.Join(dir, "main.go"), generatedProgram, 0o644)
	goRun(t, dir, "mod", "init", "generated")
	goRun(t, dir, "mod", "tidy")
	got := goRun(t, dir, "run", ".", `{"observation":"error","content":"broken","message":"","extras":{"error_id":""}}`)
	request, err := api.DecodeRequest([]byte(got))
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if run, ok := request.Action.(api.RunAction); !ok || run.Command != "true" {
		t.Errorf("the generated request %s decodes to %#v", got, request.Action)
	}
}

// goRun runs the go command in dir and returns its standard output.
func goRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
