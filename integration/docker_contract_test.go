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
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
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
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
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
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	exchanges.Replay(t, shared, "http://sandbox", key, transport(s))
}
