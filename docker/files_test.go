package docker_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
)

// archiveOf returns an archive with one empty file.
func archiveOf(t *testing.T, name string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uid: 1000})
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestCopyIntoStopped refuses to copy where no server runs, since the engine would follow
// links as root.
func TestCopyIntoStopped(t *testing.T) {
	t.Parallel()
	engine := dockertest.New(t)
	h := fakeHost(t, engine)
	s := create(t, h, sandbox.Spec{Image: "debian"})
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return h.Pause(t.Context(), s) }, "runtimectl resume " + s.ID},
		{func() error { return errors.Join(h.Resume(t.Context(), s), h.Stop(t.Context(), s, 0)) }, "runtimectl start " + s.ID},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		before := len(engine.Calls)
		err := h.CopyIn(t.Context(), s, "/w", archiveOf(t, "f"))
		if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), step.want) {
			t.Errorf("got %v, want a conflict with %q", err, step.want)
		}
		if slices.Contains(engine.Calls[before:], "copy to") {
			t.Error("the engine was asked to copy")
		}
	}
}

// TestCopyIntoRunning asks the server, and never the engine.
func TestCopyIntoRunning(t *testing.T) {
	t.Parallel()
	engine := dockertest.New(t)
	h := fakeHost(t, engine)
	var key string
	const nasty = "\x1b[2J\nruntimectl: fine \u202e"
	answer := func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("X-Session-Api-Key") != key, r.URL.Path != "/v1/unpack", len(data) < 1024, err != nil:
			t.Errorf("got %s %v, %d bytes, %v", r.URL, r.Header, len(data), err)
		case r.URL.Query().Get("path") == "/w":
			fmt.Fprint(w, `{"entries":1}`)
		case r.URL.Query().Get("path") == "/endless":
			for err == nil {
				_, err = io.WriteString(w, strings.Repeat(" ", 1<<16))
			}
		default:
			status := map[string]int{"/none": 404, "/way": 409, "/no": 400}[r.URL.Query().Get("path")]
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"detail":%q}`, nasty)
		}
	}
	engine.Serve = func(string) http.Handler { return http.HandlerFunc(answer) }
	s := create(t, h, sandbox.Spec{Image: "debian"})
	var err error
	if key, err = s.Key(); err != nil {
		t.Fatal(err)
	}
	calls := len(engine.Calls)
	for path, want := range map[string]error{"/w": nil, "/none": fs.ErrNotExist, "/way": sandbox.ErrConflict, "/no": nil, "/endless": nil} {
		err := h.CopyIn(t.Context(), s, path, archiveOf(t, "f"))
		if (path == "/w") != (err == nil) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b\n\u202e") {
			t.Errorf("%s: %q", path, err)
		}
	}
	if slices.Contains(engine.Calls[calls:], "copy to") {
		t.Error("the engine was asked to copy")
	}
}
