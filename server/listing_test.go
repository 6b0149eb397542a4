package server_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

func listRequest(path, more string) request {
	return get("/v1/list?path=" + url.QueryEscape(path) + more)
}

func TestListDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	if err := errors.Join(
		os.Mkdir(dir+"/sub", 0o750), os.WriteFile(dir+"/sub/f", []byte("one"), 0o600), os.Chtimes(dir+"/sub/f", at, at),
		os.Symlink("\xfe", dir+"/to"), os.Symlink("sub", dir+"/dir"), os.WriteFile(dir+"/\xff", nil, 0o644),
		os.Chmod(dir+"/\xff", 0o711|os.ModeSetuid),
	); err != nil {
		t.Fatal(err)
	}
	s, spec := newServer(t, func(cfg *server.Config) { cfg.WorkingDir = dir }), contract.NewSpec(t)
	list := func(path, more string) api.Listed {
		t.Helper()
		w := listRequest(path, more).send(s)
		if err := spec.CheckResponse("GET", "/v1/list", w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Error(err)
		}
		var page api.Listed
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
			t.Fatalf("%s%s: got %d %s, %v", path, more, w.Code, w.Body, err)
		}
		return page
	}
	page := list(".", "&recursive=true")
	var got []string
	for _, e := range page.Entries {
		got = append(got, e.Name+" "+e.Type+" "+e.Mode+" "+string(e.NameBase64)+" "+e.Target+" "+string(e.TargetBase64))
	}
	want := []string{
		"dir symlink 0777  sub ", "sub directory 0750   ", "sub/f file 0600   ",
		"to symlink 0777  \uFFFD \xfe", "\uFFFD file 4711 \xff  ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || page.Next != "" {
		t.Errorf("got %q, want %q", got, want)
	}
	if f := page.Entries[2]; f.Size != 3 || !f.Modified.Equal(at) {
		t.Errorf("got %+v", f)
	}
	page = list(dir, "&limit=2")
	if len(page.Entries) != 2 || page.Next == "" {
		t.Fatalf("got %+v", page)
	}
	if page = list(dir, "&after="+page.Next); len(page.Entries) != 2 || page.Entries[0].Name != "to" || page.Next != "" {
		t.Errorf("got %+v", page)
	}
	if page = list("dir", ""); len(page.Entries) != 1 || page.Entries[0].Name != "f" {
		t.Errorf("a link to a directory: got %+v", page)
	}
	for _, tt := range []struct {
		path, more string
		status     int
		body       string
	}{
		{dir + "/none", "", 404, `"code":"file_not_found","path":"` + dir + `/none","errno":"ENOENT"`},
		{dir + "/sub/f", "", 400, `"code":"not_directory"`},
		{dir, "&limit=0", 422, "query.limit"},
		{dir, "&limit=1001", 422, "query.limit"},
		{dir, "&recursive=1", 422, "query.recursive"},
		{dir, "&after=Li4", 422, "query.after"},
		{dir, "&after=*", 422, "query.after"},
		{dir, "&depth=1", 400, "depth"},
		{"", "", 400, "empty"},
	} {
		w := listRequest(tt.path, tt.more).send(s)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s%s: got %d %s, want %d %s", tt.path, tt.more, w.Code, w.Body, tt.status, tt.body)
		}
		if err := spec.CheckResponse("GET", "/v1/list", w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Error(err)
		}
	}
}

// A directory that the user may not list is an entry with an error.
func TestListUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has the rights that must not be used")
	}
	dir := testhelp.PublicDir(t)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/closed", 0o700), os.WriteFile(dir+"/closed/x", nil, 0o600), os.Mkdir(dir+"/z", 0o755)); err != nil {
		t.Fatal(err)
	}
	user := &identity.User{Name: "agent", UID: 54321, GID: 54321}
	w := listRequest(dir, "&recursive=true").send(newServer(t, func(cfg *server.Config) { cfg.As = user.Do }))
	var page api.Listed
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Entries) != 2 {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	if e := page.Entries[0]; e.Error == nil || e.Error.Code != "permission_denied" || e.Error.Path != dir+"/closed" || e.Type != "directory" {
		t.Errorf("got %s", w.Body)
	}
	if page.Entries[1].Error != nil {
		t.Errorf("got %s", w.Body)
	}
}
