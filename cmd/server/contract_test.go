package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/processors"
	"github.com/actiond/actiond/internal/testhelp"
)

const testKey = "a key for tests"

// serveForTest runs the whole program on a socket, and ends it with the test.
func serveForTest(t *testing.T, args ...string) (c *client.Client, dir, url string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	url = "unix://" + socket
	keyFile := filepath.Join(t.TempDir(), "key")
	testhelp.WriteFile(t, keyFile, testKey+"\n", 0o600)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	args = append([]string{"--addr", "unix:" + socket, "--working-dir", dir, "--session-key-file", keyFile, "--state-dir", t.TempDir()}, args...)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	go func() { done <- run(ctx, args, env, io.Discard, t.Output()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the program ended with %v", err)
		}
	})
	c, err = client.New(client.Config{BaseURL: url, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for c.Alive(t.Context()) != nil {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the program did not come up: %v", err)
		case <-look.C:
		}
	}
	return c, dir, url
}

// The same suite as on the executor, through the program, HTTP and the client.
func TestContractOverHTTP(t *testing.T) {
	t.Parallel()
	c, dir, _ := serveForTest(t)
	contract.Suite(t, c.Do, dir)
}

// The changes of actions, likewise.
func TestContractOfChanges(t *testing.T) {
	t.Parallel()
	c, dir, _ := serveForTest(t)
	contract.Changes(t, c.DoWithChanges, dir)
	contract.Undo(t, c, dir)
}

func TestSoftTimeoutIsPrinted(t *testing.T) {
	t.Parallel()
	c, _, _ := serveForTest(t, "--soft-timeout", "500ms")
	o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "read x"}})
	if err != nil || !strings.Contains(o.(api.RunObservation).Metadata.Suffix, "[The command has no new output after 0.5 seconds. ") {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestWrongKey(t *testing.T) {
	t.Parallel()
	right, _, url := serveForTest(t)
	sessions, err := right.Sessions(t.Context())
	if err != nil || len(sessions) != 1 {
		t.Fatalf("got %v, %v", sessions, err)
	}
	wrong, err := client.New(client.Config{BaseURL: url, Key: testKey + "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	_, err = wrong.Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}})
	if status, ok := errors.AsType[*client.StatusError](err); !ok || status.Status != http.StatusForbidden {
		t.Errorf("got %v, want status 403", err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"version", "--version"} {
		var out strings.Builder
		if err := run(t.Context(), []string{word}, nil, &out, io.Discard); err != nil || out.String() != "actiond server "+version()+"\n" {
			t.Errorf("%s: got %q, %v", word, out.String(), err)
		}
	}
}

func TestSocketWithALongPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	err := run(t.Context(), []string{"--addr", "unix:" + path, "--working-dir", t.TempDir()}, []string{"PATH=" + os.Getenv("PATH")}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "at most") || !strings.Contains(err.Error(), "take a shorter one") {
		t.Errorf("got %v, want it to say how long a path may be", err)
	}
}

// TestMain keeps temporary directories near the root: tests put sockets there,
// and the kernel takes no longer paths than 107 bytes for those. It keeps descriptors
// that the caller of go test left open from the servers, whose descriptors are counted. Servers in
// this process leave it all processors: it has more to do than answer their requests.
func TestMain(m *testing.M) {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if os.Getenv(loopbackVariable) != "" {
		executeWithLoopback()
	}
	if at := os.Getenv(listenVariable); at != "" {
		listenInstead(at)
		return
	}
	if len(os.TempDir()) > 20 {
		os.Setenv("TMPDIR", "/tmp")
	}
	governor = func() *processors.Governor { return nil }
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}
