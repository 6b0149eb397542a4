//go:build integration

package integration

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/integration/exchanges"
	"github.com/actiond/actiond/sandbox"
)

// transport dials the sandbox's server.
func transport(s *sandbox.Sandbox) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) }}
}

// TestDockerContract is the suite at its third depth: what the executor keeps,
// and the server over HTTP, a container keeps too.
func TestDockerContract(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage)})
	key := keyOf(t, s)
	c, err := client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport(s)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	contract.Suite(t, c.Do, "/workspace")
}

// TestDockerContractOfChanges is the same of what actions change, in a sandbox of its own: processes of others would
// have been left from before.
func TestDockerContractOfChanges(t *testing.T) {
	t.Parallel()
	s := create(t, testHost(t), sandbox.Spec{Image: image(t, fullImage)})
	key := keyOf(t, s)
	c, err := client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport(s)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	contract.Changes(t, c.DoWithChanges, "/workspace")
	contract.Undo(t, c, "/workspace")
}

// TestDockerReplay replays what was recorded of the reference against a
// container of our image.
func TestDockerReplay(t *testing.T) {
	t.Parallel()
	shared := exchanges.Dir(t, "..")
	s := create(t, testHost(t), sandbox.Spec{Image: image(t, fullImage)})
	key := keyOf(t, s)
	exchanges.Replay(t, shared, "http://sandbox", key, transport(s))
}

// TestGatewayContractOfUndo takes changes back through the gateway, and by the commands, which use its state directory.
func TestGatewayContractOfUndo(t *testing.T) {
	t.Parallel()
	g := serveGateway(t)
	made := g.want(http.StatusCreated, http.MethodPost, "/v1/sandboxes", `{"image":"`+image(t, busyboxImage)+`"}`)
	id, url := made["id"].(string), made["url"].(string)
	c, err := client.New(client.Config{BaseURL: url, Key: made["session_api_key"].(string)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	contract.Undo(t, c, "/workspace")
	for _, path := range []string{"/v1/restore", "/v1/checkpoints"} {
		g.want(http.StatusForbidden, http.MethodPost, url+path, `{}`, "X-Session-API-Key", "another")
	}
	program, err := cliProgram()
	if err != nil {
		t.Fatal(err)
	}
	server, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	runs := cli{t, program, server, g.stateDir}
	runs.ok("exec", id, "--", "sh", "-c", "echo 1 > f")
	runs.ok("checkpoint", id, "one")
	runs.ok("exec", id, "--", "sh", "-c", "rm f")
	runs.ok("undo", id)
	runs.ok("exec", id, "--", "sh", "-c", "echo 2 > f")
	runs.ok("restore", id, "one")
	if got := runs.ok("exec", id, "--", "cat", "f"); got != "1\n" {
		t.Errorf("after undo and restore: got %q", got)
	}
	g.want(http.StatusNoContent, http.MethodDelete, "/v1/sandboxes/"+id, "")
}
