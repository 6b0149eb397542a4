package server_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// tarball is a request with an archive.
func tarball(path, archive string) request {
	return request{method: http.MethodPost, path: path, contentType: "application/x-tar", body: archive}
}

// tarOf is an archive of members with their names as content, where they have a
// size: as many bytes of that as there are.
func tarOf(tb testing.TB, members ...*tar.Header) string {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range members {
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if h.Size > 0 && h.Size <= 1<<20 {
			if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
				tb.Fatal(err)
			}
		}
	}
	_ = w.Close() // it complains of what is missing on purpose
	return out.String()
}

// TestUnpackAsUser has links of the agent in the way of what a controller copies:
// they lead to nothing that the agent may not change itself.
func TestUnpackAsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has the rights that must not be used")
	}
	dir := testhelp.PublicDir(t)
	const uid, gid = 54321, 54322
	secret, work := filepath.Join(dir, "secret"), filepath.Join(dir, "work")
	err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(secret, 0o755), os.Mkdir(work, 0o755), os.WriteFile(secret+"/passwd", []byte("root"), 0o644),
		os.Chown(work, uid, gid), os.Symlink(secret+"/passwd", work+"/file"), os.Symlink(secret, work+"/dir"), os.WriteFile(work+"/theirs", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	user := &identity.User{Name: "agent", UID: uid, GID: gid, Groups: []uint32{gid}}
	s := newServer(t, func(cfg *server.Config) { cfg.As = user.Do })
	unpack := func(path string, members ...*tar.Header) (status int, body string) {
		w := tarball("/v1/unpack?path="+url.QueryEscape(path), tarOf(t, members...)).send(s)
		return w.Code, w.Body.String()
	}
	for _, tt := range []struct {
		path, name string
		status     int
	}{
		{work, "file", 200}, // the link is replaced
		{work, "dir/new", 409},
		{work, "dir/passwd", 409},
		{work + "/dir", "new", 403}, // that the agent may not make either
		{work + "/dir", "passwd", 403},
		{secret, "passwd", 403},
		{work, "new/suid", 200},
	} {
		h := &tar.Header{Name: tt.name, Mode: 0o6755, Size: 3, Uid: 0, Gid: 0}
		if status, body := unpack(tt.path, h); status != tt.status {
			t.Errorf("%s in %s: got %d %s, want %d", tt.name, tt.path, status, body, tt.status)
		}
	}
	for _, name := range []string{"file", "new", "new/suid"} {
		info, err := os.Lstat(filepath.Join(work, name))
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != uid || st.Gid != gid || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSymlink) != 0 {
			t.Errorf("%s belongs to %d:%d and has mode %v", name, st.Uid, st.Gid, info.Mode())
		}
	}
	entries, err := os.ReadDir(secret)
	if err != nil || len(entries) != 1 {
		t.Errorf("root's directory holds %v, %v", entries, err)
	}
	if info, err := os.Stat(secret + "/passwd"); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || read(t, secret+"/passwd") != "root" {
		t.Errorf("root's file is %v, %v", info, err)
	}
}

// TestUnpackKeepsLinks makes links as they are, wherever they lead.
func TestUnpackKeepsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := tarball("/v1/unpack?path="+url.QueryEscape(dir), tarOf(t,
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "d/out", Linkname: "../../x"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "abs", Linkname: "/etc/passwd"},
	)).send(newServer(t))
	if w.Code != 200 {
		t.Fatal(w.Body)
	}
	for name, want := range map[string]string{"d/out": "../../x", "abs": "/etc/passwd"} {
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

// TestUnpackManyMembers tells how many there were.
func TestUnpackManyMembers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var members []*tar.Header
	for i := range 300 {
		members = append(members, &tar.Header{Name: fmt.Sprintf("d%d/%s", i%3, strings.Repeat("f", 1+i/3)), Mode: 0o644, Size: 1})
	}
	w := tarball("/v1/unpack?path="+url.QueryEscape(dir), tarOf(t, members...)).send(newServer(t))
	if w.Code != 200 || w.Body.String() != `{"entries":300}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// With an id an archive is unpacked at most once, also where it failed half-way, and one
// that is cut does nothing.
func TestUnpackOnce(t *testing.T) {
	t.Parallel()
	s, spec, dir := fileServer(t, func(cfg *server.Config) { cfg.MaxUpload = 1 << 20 }), contract.NewSpec(t), t.TempDir()
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1, Mode: 0o600}
	}
	good, half := tarOf(t, file("a"), file("b/c")), tarOf(t, file("a"), file("../x"))
	send := func(id, query, archive string) *httptest.ResponseRecorder {
		t.Helper()
		q := tarball("/v1/unpack?path="+url.QueryEscape(dir)+query, archive)
		q.header = map[string]string{"Idempotency-Key": id}
		w := q.send(s)
		if err := spec.CheckResponse("POST", "/v1/unpack", w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Error(err)
		}
		return w
	}
	for _, step := range []struct {
		id, query, archive string
		status             int
		body               string
		replayed           string
	}{
		{"a", "/d/e&create=true", good, 200, `{"message":"I unpacked 2 entries into the directory ` + dir + `/d/e.","observation":"file","content":"","extras":{"path":"` + dir + `/d/e","sha256":"","size":0,"created":false,"undoable":false,"directory":true,"entries":2},"outcome":"succeeded"}`, ""},
		{"a", "/d/e&create=true", good, 200, `"entries":2`, "true"},
		{"a", "/d/e", good, 422, "", ""},
		{"a", "/d/e&create=true", half, 422, "", ""},
		{"b", "/n", good, 404, `"code":"file_not_found"`, ""},
		{"b", "/n&create=true", "no archive", 400, `"code":"invalid_argument"`, ""},
		{"b", "/n&create=yes", good, 422, "query.create", ""},
		{"b", "/n&create=true", strings.Repeat("x", 1<<20+1), 413, `"code":"file_too_large"`, ""},
		{"c", "/d/f&create=true", half, 200, `"observation":"error","content":"1 entries of the archive were unpacked, and then: `, ""},
		{"c", "/d/f&create=true", half, 200, `"code":"invalid_argument"`, "true"},
	} {
		w := send(step.id, step.query, step.archive)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.body) || w.Header().Get("Idempotent-Replayed") != step.replayed {
			t.Errorf("%s%s: got %d %s %v, want %d %s", step.id, step.query, w.Code, w.Body, w.Header(), step.status, step.body)
		}
	}
	if _, err := os.Lstat(dir + "/n"); err == nil {
		t.Error("a directory is left of an archive that is none")
	}
	q := tarball("/v1/unpack?path="+url.QueryEscape(dir)+"/new/er&create=true", good)
	if w := q.send(s); w.Code != 200 || w.Body.String() != `{"entries":2}` {
		t.Errorf("without an id: got %d %s", w.Code, w.Body)
	}
}
