//go:build integration

package integration

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/sandbox"
)

// clientOf speaks to the sandbox's server.
func clientOf(tb testing.TB, s *sandbox.Sandbox) *client.Client {
	tb.Helper()
	key := keyOf(tb, s)
	c, err := client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport(s)}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// TestDockerZipSlip uploads archives whose members lead out of the destination.
func TestDockerZipSlip(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	c := clientOf(t, s)
	run(t, s, "mkdir in")
	for name, members := range map[string][]struct {
		name, text string
		mode       fs.FileMode
	}{
		"dots":            {{"../evil", "x", 0o644}},
		"deep dots":       {{"a/../../evil", "x", 0o644}},
		"absolute":        {{"/workspace/evil", "x", 0o644}},
		"through a link":  {{"link", "/workspace", fs.ModeSymlink | 0o777}, {"link/evil", "x", 0o644}},
		"backslashes":     {{`..\evil`, "x", 0o644}},
		"a setuid member": {{"evil", "x", fs.ModeSetuid | 0o755}},
		"a device":        {{"evil", "", fs.ModeDevice | 0o666}},
	} {
		var archive bytes.Buffer
		w := zip.NewWriter(&archive)
		for _, m := range members {
			header := &zip.FileHeader{Name: m.name}
			header.SetMode(m.mode)
			f, err := w.CreateHeader(header)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, m.text); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := c.Upload(t.Context(), "/workspace/in", "x.zip", &archive, true)
		if status, refused := errors.AsType[*client.StatusError](err); err != nil && (!refused || status.Status/100 != 4) {
			t.Errorf("%s: got %v, want it done or refused", name, err)
		}
		if out, _ := run(t, s, `find / -xdev -name '*evil*' ! -path '/workspace/in/*' 2>/dev/null; find in -perm -4000; find in -type b -o -type c; rm -rf in; mkdir in`); out != "" {
			t.Errorf("%s: it made\n%s", name, out)
		}
	}
}

// TestDockerSymlinkRace has an agent that swaps a directory for a link to /etc
// while the controller reads, writes and downloads what is in it.
func TestDockerSymlinkRace(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage)})
	c := clientOf(t, s)
	ctx := t.Context()
	run(t, s, "mkdir -p top/d; echo mine > top/d/shadow; echo mine > top/d/passwd; touch on")
	before, _ := run(t, s, "md5sum /etc/passwd; ls /etc | md5sum")
	swapping := make(chan struct{})
	go func() {
		defer close(swapping)
		_, _ = c.Do(ctx, api.Request{Session: "swap", Action: api.RunAction{
			Command: "cd top; while test -e ../on; do mv d e; ln -s /etc d; rm d; mv -T e d; done", Blocking: true,
		}})
	}()
	for range 60 {
		// The server reads and writes as the agent, who may not read the one and not write the other.
		o, err := c.Do(ctx, api.Request{Action: api.ReadAction{Path: "/workspace/top/d/shadow", End: -1}})
		if err != nil {
			t.Fatal(err)
		}
		if read, ok := o.(api.ReadObservation); ok && read.Content != "mine\n" && read.Content != "mine\n\n" {
			t.Fatalf("it reads %q", read.Content)
		}
		for _, name := range []string{"passwd", "evil"} {
			if _, err := c.Do(ctx, api.Request{Action: api.WriteAction{Path: "/workspace/top/d/" + name, Content: "mine\n", End: -1}}); err != nil {
				t.Fatal(err)
			}
		}
		if zipped, err := c.Download(ctx, "/workspace/top"); err == nil {
			data, _ := io.ReadAll(zipped) // a file that changed meanwhile ends it
			zipped.Close()
			if r, err := zip.NewReader(bytes.NewReader(data), int64(len(data))); err == nil {
				for _, f := range r.File {
					if f.Name == "hostname" || strings.HasSuffix(f.Name, "/hostname") {
						t.Fatal("the archive of top has what is in /etc")
					}
				}
			}
		}
		if _, err := c.Upload(ctx, "/workspace/top/d", "uploaded", strings.NewReader("mine\n"), false); err != nil && !errors.As(err, new(*client.StatusError)) {
			t.Fatal(err)
		}
	}
	run(t, s, "rm on")
	<-swapping
	if after, _ := run(t, s, "md5sum /etc/passwd; ls /etc | md5sum"); after != before {
		t.Errorf("/etc changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestDockerFloods bothers one small server in the ways that need no key, or
// only patience, and asks every time whether it still works.
func TestDockerFloods(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Memory: 128 << 20})
	key := keyOf(t, s)
	run(t, s, "lives=same")
	for _, tt := range []struct {
		name   string
		attack func(t *testing.T, s *sandbox.Sandbox, key string)
	}{
		{"slowloris", slowloris},
		{"a body said to be large", func(t *testing.T, s *sandbox.Sandbox, key string) {
			t.Helper()
			largeBody(t, s, key, 4<<30)
		}},
		{"a body without end", func(t *testing.T, s *sandbox.Sandbox, key string) {
			t.Helper()
			largeBody(t, s, key, -1)
		}},
		{"10,000 wrong keys", wrongKeys},
	} {
		t.Logf("%s", tt.name) // one after the other: they are about one server
		tt.attack(t, s, key)
		if out, code := run(t, s, "echo $lives"); out != "same" || code != 0 {
			t.Errorf("%s: afterwards: got %q, exit code %d, want the same shell", tt.name, out, code)
		}
	}
}

// slowloris opens connections that never finish their request. While they are
// there others are answered, and they are closed in the end.
func slowloris(t *testing.T, s *sandbox.Sandbox, _ string) {
	t.Helper()
	ended := make(chan error, 100)
	for range cap(ended) {
		conn, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /execute_action HTTP/1.1\r\nHost: sandbox\r\nX-Slow: "); err != nil {
			t.Fatal(err)
		}
		go func() { // ends with its connection
			_ = conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
			_, err := io.Copy(io.Discard, conn)
			ended <- err
		}()
	}
	if out, _ := run(t, s, "echo alive"); out != "alive" {
		t.Errorf("while they are open: got %q", out)
	}
	for range cap(ended) {
		if err := <-ended; err != nil && strings.Contains(err.Error(), "i/o timeout") {
			t.Fatal("a connection that sends nothing is kept for minutes")
		}
	}
}

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// largeBody sends more than the sandbox has memory for; -1 does not say how
// much. It must be refused, and not read to its end.
func largeBody(t *testing.T, s *sandbox.Sandbox, key string, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/execute_action", io.LimitReader(zeros{}, 4<<30))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = size
	req.Header.Set("X-Session-API-Key", key)
	client := &http.Client{Transport: transport(s)}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	switch {
	case ctx.Err() != nil:
		t.Error("it is read for minutes")
	case err != nil: // the connection was cut, which is a refusal too
	case resp.StatusCode/100 != 4:
		t.Errorf("got %s, want a refusal", resp.Status)
	}
	if err == nil {
		resp.Body.Close()
	}
}

// wrongKeys tries 10,000 of them.
func wrongKeys(t *testing.T, s *sandbox.Sandbox, key string) {
	t.Helper()
	client := &http.Client{Transport: transport(s)}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 2500 {
				wrong := fmt.Sprintf("%s%04d%d", key[:len(key)-5], i, worker)
				if wrong == key {
					continue
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/execute_action",
					strings.NewReader(`{"action":{"action":"run","args":{"command":"lives=other"}}}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Session-API-Key", wrong)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("key %d: got %s, want 403", i, resp.Status)
					return
				}
			}
		})
	}
	group.Wait()
}
