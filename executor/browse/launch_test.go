package browse_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/browse"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// A browser that ends at once is started again without its own sandbox, however
// it explains its end: Debian's chromium-sandbox says "Failed to move to new
// namespace" in a container. A third start is of no use.
func TestStartsAgainWithoutSandbox(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "actiond-browse-") //nolint:usetesting // another user needs access
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	starts := filepath.Join(dir, "starts")
	script := "#!/bin/sh\nfor a; do [ \"$a\" = --no-sandbox ] && free=free; done\necho start $free >>" + starts + "\necho Failed to move to new namespace >&2\nexit 1\n"
	testhelp.WriteProgram(t, filepath.Join(dir, "chromium"), script)
	err = errors.Join(os.WriteFile(starts, nil, 0o666), os.Chmod(starts, 0o666), os.Chmod(dir, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	cfg := browse.Config{Env: []string{"PATH=" + dir + ":/bin:/usr/bin"}}
	if os.Geteuid() == 0 { // root's browser has no sandbox of its own
		if cfg.User, err = identity.Lookup("nobody"); err != nil {
			t.Fatal(err)
		}
	}
	b := browse.New(cfg)
	t.Cleanup(b.Close)
	if _, err := b.Run(t.Context(), browse.Step{URL: "about:blank", Timeout: -1}); err == nil || !strings.Contains(err.Error(), "Failed to move to new namespace") {
		t.Errorf("got %v, want what the program said", err)
	}
	got, err := os.ReadFile(starts)
	if err != nil || string(got) != "start\nstart free\n" {
		t.Errorf("got starts %q, %v; want one with the sandbox and one without", got, err)
	}
}
