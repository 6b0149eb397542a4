package server_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

func treeRequest(method, route string, query ...string) request {
	values := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	return request{method: method, path: route + "?" + values.Encode(), header: map[string]string{}}
}

func TestTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/wd", 0o755), os.Mkdir(dir+"/kept", 0o755), os.WriteFile(dir+"/kept/x", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := serverOf(t, executor.Config{WorkingDir: dir + "/wd", Shell: "/bin/sh", StateDir: t.TempDir()}, func(cfg *server.Config) { cfg.WorkingDir = dir + "/wd" })
	spec := contract.NewSpec(t)
	const mkdir, move, files = "/v1/files/mkdir", "/v1/files/move", "/v1/files"
	for _, step := range []struct {
		q      request
		status int
		body   string
	}{
		{treeRequest("POST", mkdir, "path", "a/b"), 404, `"code":"file_not_found"`},
		{treeRequest("POST", mkdir, "path", "a/b/c", "parents", "true", "mode", "0700"), 201, `{"message":"I made the directory ` + dir + `/wd/a/b/c.","observation":"file","content":"","extras":{"path":"` + dir + `/wd/a/b/c","sha256":"","size":0,"created":true,"undoable":false,"directory":true},"outcome":"succeeded"}`},
		{treeRequest("POST", mkdir, "path", "a/b/c"), 409, `"code":"already_exists"`},
		{treeRequest("POST", mkdir, "path", "a/b/c/", "parents", "true"), 200, `"created":false`},
		{treeRequest("POST", mkdir, "path", "/", "parents", "true"), 200, `"created":false`},
		{treeRequest("POST", mkdir, "path", "/"), 400, `"code":"path_not_allowed"`},
		{treeRequest("POST", mkdir, "path", "../kept/x", "parents", "true"), 409, `"code":"already_exists"`},
		{treeRequest("POST", mkdir, "path", "../kept/x/y/z", "parents", "true"), 400, `"code":"not_directory"`},
		{treeRequest("POST", mkdir, "path", "d", "mode", "1777"), 422, "query.mode"},
		{treeRequest("POST", mkdir, "path", "d", "to", "e"), 400, "query"},
		{treeRequest("POST", mkdir), 422, "query.path"},
		{treeRequest("POST", move, "path", "a"), 422, "query.to"},
		{treeRequest("POST", move, "path", "a", "to", "z"), 201, `{"message":"I moved the directory ` + dir + `/wd/a to ` + dir + `/wd/z.","observation":"file","content":"","extras":{"path":"` + dir + `/wd/z","sha256":"","size":0,"created":true,"undoable":false,"directory":true,"moved_from":"` + dir + `/wd/a"},"outcome":"succeeded"}`},
		{treeRequest("POST", move, "path", "a", "to", "y"), 404, `"code":"file_not_found","path":"` + dir + `/wd/a"`},
		{treeRequest("POST", move, "path", "z", "to", "../kept"), 409, `"code":"already_exists","path":"` + dir + `/wd/../kept"`},
		{treeRequest("POST", move, "path", "z", "to", "../kept", "replace", "true"), 409, `"code":"directory_not_empty"`},
		{treeRequest("POST", move, "path", "../wd", "to", "../w"), 400, `"code":"path_not_allowed"`},
		{treeRequest("POST", move, "path", dir, "to", dir+"2"), 400, `"code":"path_not_allowed"`},
		{treeRequest("POST", move, "path", "../kept", "to", "../wd", "replace", "true"), 400, `"code":"path_not_allowed"`},
		{treeRequest("POST", move, "path", "z", "to", "/dev/shm/actiond-never"), 400, `"code":"cross_device"`},
		{treeRequest("DELETE", files, "path", "z"), 400, `"code":"is_directory"`},
		{treeRequest("DELETE", files, "path", "z", "recursive", "true"), 200, `{"message":"I removed the directory ` + dir + `/wd/z.","observation":"file","content":"","extras":{"path":"` + dir + `/wd/z","sha256":"","size":0,"created":false,"undoable":false,"directory":true,"removed":3},"outcome":"succeeded"}`},
		{treeRequest("DELETE", files, "path", "z", "recursive", "true"), 404, `"code":"file_not_found"`},
		{treeRequest("DELETE", files, "path", ".", "recursive", "true"), 400, `"code":"path_not_allowed"`},
		{treeRequest("DELETE", files, "path", "../wd", "recursive", "true"), 400, `"code":"path_not_allowed"`},
		{treeRequest("DELETE", files, "path", "/", "recursive", "true"), 400, `"code":"path_not_allowed"`},
		{treeRequest("DELETE", files, "path", dir, "recursive", "true"), 400, `"code":"path_not_allowed"`},
		{treeRequest("DELETE", files, "path", "../kept", "recursive", "maybe"), 422, "query.recursive"},
		{treeRequest("DELETE", files, "path", "../kept/x", "recursive", "true"), 200, "I removed the file"},
	} {
		w := step.q.send(s)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.body) {
			t.Errorf("%s %s: got %d %s, want %d %s", step.q.method, step.q.path, w.Code, w.Body, step.status, step.body)
		}
		route, _, _ := strings.Cut(step.q.path, "?")
		if err := spec.CheckResponse(step.q.method, route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(dir + "/wd"); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v", entries, err)
	}
	q := treeRequest("POST", move, "path", "a", "to", "b")
	q.header["If-Match"] = "*"
	if w := q.send(s); w.Code != 400 || !strings.Contains(w.Body.String(), "If-Match") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// Each of them runs once under its id, also a removal that failed half-way.
func TestTreeOnce(t *testing.T) {
	t.Parallel()
	s, dir := fileServer(t), t.TempDir()
	once := func(q request) (int, string, bool) {
		q.header["Idempotency-Key"] = q.method + q.path[:14]
		w := q.send(s)
		return w.Code, w.Body.String(), w.Header().Get(api.ReplayedHeader) == "true"
	}
	for _, q := range []request{
		treeRequest("POST", "/v1/files/mkdir", "path", dir+"/a"),
		treeRequest("POST", "/v1/files/move", "path", dir+"/a", "to", dir+"/b"),
		treeRequest("DELETE", "/v1/files", "path", dir+"/b", "recursive", "true"),
	} {
		status, body, replayed := once(q)
		again, same, replays := once(q)
		if status/100 != 2 || replayed || again != status || same != body || !replays {
			t.Errorf("%s: got %d %s, then %d %s", q.path, status, body, again, same)
		}
	}
	q := treeRequest("DELETE", "/v1/files", "path", dir+"/c", "recursive", "true")
	if status, body, _ := once(q); status != 409 && status != 422 {
		t.Errorf("another request of the same id: got %d %s", status, body)
	}
}

func TestTreeFailsHalfWay(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs a file that may not be removed")
	}
	dir := testhelp.PublicDir(t)
	user := &identity.User{Name: "agent", Home: dir, UID: 54321, GID: 54321}
	s := serverOf(t, executor.Config{WorkingDir: "/", Shell: "/bin/sh", StateDir: t.TempDir(), User: user})
	if err := errors.Join(
		os.MkdirAll(dir+"/d/a/kept", 0o755), os.WriteFile(dir+"/d/a/kept/x", nil, 0o600), os.WriteFile(dir+"/d/gone", nil, 0o600),
		os.Chown(dir+"/d", int(user.UID), -1), os.Chown(dir, int(user.UID), -1),
	); err != nil {
		t.Fatal(err)
	}
	q := treeRequest("DELETE", "/v1/files", "path", dir+"/d", "recursive", "true")
	q.header["Idempotency-Key"] = "half"
	w := q.send(s)
	var o struct {
		Observation, Content, Outcome, Code string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || w.Code != 200 || o.Observation != "error" || o.Outcome != "failed" || o.Code != "permission_denied" ||
		!strings.Contains(o.Content, "1 names") || !strings.Contains(o.Content, dir+"/d/a/kept") {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	if again := q.send(s); again.Body.String() != w.Body.String() || again.Header().Get(api.ReplayedHeader) != "true" {
		t.Errorf("again: got %d %s", again.Code, again.Body)
	}
	q = treeRequest("DELETE", "/v1/files", "path", dir+"/d/a", "recursive", "true")
	if w := q.send(s); w.Code != 403 || !strings.Contains(w.Body.String(), `"code":"permission_denied"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
