package docker_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
)

// archiveOf is an archive of directories (a/), links (a -> b), hard links (a => b)
// and files.
func archiveOf(t *testing.T, members ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m, Mode: 0o644, Uid: 1000}
		if name, target, ok := strings.Cut(m, " -> "); ok {
			h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, target
		} else if name, target, ok := strings.Cut(m, " => "); ok {
			h.Typeflag, h.Name, h.Linkname = tar.TypeLink, name, target
		} else if strings.HasSuffix(m, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestCopyIntoStopped refuses each path that leads through a link, since the engine
// follows links as root.
func TestCopyIntoStopped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dir     string
		members []string
		want    error
	}{
		{"/w", []string{"f"}, nil},
		{"/w", []string{"old", "d/", "d/f", "d/new/", "d/new/f", "x/y/z"}, nil},
		{"/w", []string{"./"}, nil},
		{"/new/dir", []string{"f"}, nil}, // a real engine answers 404
		{"/w/link", []string{"f"}, sandbox.ErrConflict},
		{"/w/link/below", []string{"f"}, sandbox.ErrConflict},
		{"/w", []string{"link"}, sandbox.ErrConflict},
		{"/w", []string{"link/"}, sandbox.ErrConflict},
		{"/w", []string{"link/passwd"}, sandbox.ErrConflict},
		{"/w", []string{"d/link/deep/f"}, sandbox.ErrConflict},
		{"/w", []string{"fine", "d/", "d/link -> f"}, sandbox.ErrConflict},
		{"/w", []string{"hard => link/passwd"}, sandbox.ErrConflict},
		{"/w", []string{"a -> /etc", "a/passwd"}, sandbox.ErrConflict},
		{"/w", []string{"new/", "new/a -> /etc", "new/a/b/passwd"}, sandbox.ErrConflict},
		{"/w", []string{"../etc/passwd"}, sandbox.ErrInvalid},
		{"/w", []string{"a/../../etc/passwd"}, sandbox.ErrInvalid},
		{"/", []string{"w/link/passwd"}, sandbox.ErrConflict},
		{"/w/../w/link", []string{"passwd"}, sandbox.ErrConflict},
	} {
		engine := dockertest.New(t)
		h := fakeHost(t, engine)
		s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Stop(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
		root := engine.Containers[s.Instance].Root
		mkdirs(t, root, root+"/w", root+"/w/d", root+"/etc")
		symlink(t, "/etc", root+"/w/link")
		symlink(t, "/etc", root+"/w/d/link")
		if err := os.WriteFile(root+"/w/old", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		before := len(engine.Calls)
		err = h.CopyIn(t.Context(), s, tt.dir, archiveOf(t, tt.members...))
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s, %q: got %v, want %v", tt.dir, tt.members, err, tt.want)
		}
		if copied := slices.Contains(engine.Calls[before:], "copy to"); copied != (tt.want == nil) {
			t.Errorf("%s, %q: the engine was asked to copy: %v", tt.dir, tt.members, copied)
		}
	}
}

// TestCopyIntoSharedMount refuses a directory that the agent of another sandbox can
// change while the engine writes.
func TestCopyIntoSharedMount(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	mkdirs(t, dir+"/share", dir+"/share/sub")
	engine := dockertest.New(t)
	h := fakeHost(t, engine)
	s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: dir + "/share", Target: "/w"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	root := engine.Containers[s.Instance].Root
	mkdirs(t, root, root+"/w", root+"/w/sub", root+"/x")
	for _, other := range []string{"", dir + "/share", dir + "/share/sub", dir} {
		engine.Foreign = nil
		if other != "" {
			engine.Foreign = []container.Summary{{ID: "f", Mounts: []container.MountPoint{{Type: mount.TypeBind, Source: other, RW: true}}}}
		}
		for _, to := range []string{"/w", "/w/sub"} {
			err := h.CopyIn(t.Context(), s, to, archiveOf(t, "f"))
			if (other == "") != (err == nil) || err != nil && !errors.Is(err, sandbox.ErrConflict) {
				t.Errorf("%s with %q mounted elsewhere: got %v", to, other, err)
			}
		}
		if err := h.CopyIn(t.Context(), s, "/x", archiveOf(t, "f")); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
		if err := h.CopyIn(t.Context(), s, "/", archiveOf(t, "w/f")); (other == "") != (err == nil) {
			t.Errorf("from above, with %q mounted elsewhere: got %v", other, err)
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
	s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"})
	if err != nil {
		t.Fatal(err)
	}
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
