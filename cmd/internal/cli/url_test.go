package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/api/client"
)

// The output of url is enough for a client.
func TestURL(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create"))
	address := m.ok("url", id)
	if path, found := strings.CutPrefix(strings.TrimSuffix(address, "\n"), "unix://"); !found {
		t.Errorf("got %q", address)
	} else if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("no socket is at %s: %v", path, err)
	}
	var shown struct{ URL, Key string }
	if err := json.Unmarshal([]byte(m.ok("url", "-o", "json", "--show-key", id)), &shown); err != nil || shown.URL != strings.TrimSpace(address) || shown.Key == "" {
		t.Fatalf("got %+v, %v", shown, err)
	}
	if strings.Contains(address+m.ok("url", "-o", "json", id)+m.ok("url", "-o", "yaml", id), shown.Key) {
		t.Error("the key is printed without --show-key")
	}
	if got := m.ok("url", "--show-key", id); strings.Join(strings.Fields(got), " ") != shown.URL+" "+shown.Key {
		t.Errorf("got %q", got)
	}
	c, err := client.New(client.Config{BaseURL: shown.URL, Key: shown.Key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Sessions(t.Context()); err != nil {
		t.Error(err)
	}
	m.ok("stop", id)
	if code, stdout, stderr := m.run("url", id); code == 0 || stdout != "" || !strings.Contains(stderr, "stopped") {
		t.Errorf("of a stopped sandbox: got %d %q %q", code, stdout, stderr)
	}
}
