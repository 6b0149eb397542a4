package server_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/server"
)

// fileServer is a server with a real executor.
func fileServer(t *testing.T, change ...func(*server.Config)) *server.Server {
	t.Helper()
	return serverOf(t, executor.Config{WorkingDir: t.TempDir(), Shell: "/bin/sh", StateDir: t.TempDir()}, change...)
}

func serverOf(t *testing.T, of executor.Config, change ...func(*server.Config)) *server.Server {
	t.Helper()
	exec, err := executor.New(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Close() })
	return newServer(t, append(change, func(cfg *server.Config) {
		cfg.Executor, cfg.RemoveFile, cfg.WriteInPlace = exec, exec.RemoveFile, exec.WriteInPlace
		cfg.RemoveTree, cfg.MakeDirectory, cfg.MoveFile = exec.RemoveTree, exec.MakeDirectory, exec.MoveFile
		cfg.StageFile = stage(exec)
	})...)
}

func stage(exec *executor.Executor) func(context.Context, string) (server.Incoming, error) {
	return func(ctx context.Context, path string) (server.Incoming, error) {
		in, err := exec.StageFile(ctx, path)
		if err != nil {
			return nil, err
		}
		return in, nil
	}
}

func fileRequest(method, path, body string, header ...string) request {
	q := request{method: method, path: "/v1/files?path=" + url.QueryEscape(path), body: body, header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	return q
}

const (
	sumOne = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" // of "one"
	sumTwo = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3" // of "two"
)

func TestFileBytes(t *testing.T) {
	t.Parallel()
	s, spec := fileServer(t), contract.NewSpec(t)
	path := filepath.Join(t.TempDir(), "dir", "f")
	for _, step := range []struct {
		name   string
		q      request
		status int
		body   string // "" for any
		etag   string
	}{
		{"missing", fileRequest("GET", path, ""), 404, `{"detail":"File not found: \"` + path + `\"","errors":[{"code":"file_not_found","path":"` + path + `","errno":"ENOENT"}]}`, ""},
		{"replace nothing", fileRequest("PUT", path, "one", "If-Match", "*"), 412, "", ""},
		{
			"create", fileRequest("PUT", path, "one", "If-None-Match", "*", "Idempotency-Key", "a"), 201,
			`{"message":"I wrote to the file ` + path + `.","observation":"file","content":"","extras":{"path":"` + path + `","sha256":"` + sumOne + `","size":3,"created":true,"undoable":true},"outcome":"succeeded"}`, sumOne,
		},
		{"create again", fileRequest("PUT", path, "one", "If-None-Match", "*", "Idempotency-Key", "a"), 201, "", sumOne},
		{"the id with another body", fileRequest("PUT", path, "two", "If-None-Match", "*", "Idempotency-Key", "a"), 422, "", ""},
		{"create another time", fileRequest("PUT", path, "one", "If-None-Match", "*", "Idempotency-Key", "b"), 412, "", ""},
		{"read", fileRequest("GET", path, ""), 200, "one", sumOne},
		{"look", fileRequest("HEAD", path, ""), 200, "", sumOne},
		{"range", fileRequest("GET", path, "", "Range", "bytes=1-"), 206, "ne", sumOne},
		{"range of the same", fileRequest("GET", path, "", "Range", "bytes=1-", "If-Range", `"`+sumOne+`"`), 206, "ne", sumOne},
		{"range of another", fileRequest("GET", path, "", "Range", "bytes=1-", "If-Range", `"`+sumTwo+`"`), 200, "one", sumOne},
		{"range behind the end", fileRequest("GET", path, "", "Range", "bytes=9-"), 416, "", ""},
		{"known", fileRequest("GET", path, "", "If-None-Match", `"`+sumOne+`"`), 304, "", sumOne},
		{"replace another", fileRequest("PUT", path, "two", "If-Match", `"`+sumTwo+`"`), 412, "", ""},
		{"replace by a weak tag", fileRequest("PUT", path, "two", "If-Match", `W/"`+sumOne+`"`), 412, "", ""},
		{"replace", fileRequest("PUT", path, "two", "If-Match", `"x", "`+sumOne+`"`), 200, "", sumTwo},
		{"tags without quotes", fileRequest("PUT", path, "two", "If-Match", sumOne), 422, "", ""},
		{"a part", fileRequest("PUT", path, "two", "Content-Range", "bytes 0-2/3"), 400, "", ""},
		{"undo", post("/v1/actions", `{"action":{"action":"edit","args":{"path":"`+path+`","command":"undo_edit"}}}`), 200, "", ""},
		{"read again", fileRequest("GET", path, ""), 200, "one", sumOne},
		{"remove", fileRequest("DELETE", path, "", "Idempotency-Key", "d"), 200, "", ""},
		{"remove again", fileRequest("DELETE", path, "", "Idempotency-Key", "d"), 200, "", ""},
		{"remove nothing", fileRequest("DELETE", path, ""), 404, "", ""},
		{"undo the removal", post("/v1/actions", `{"action":{"action":"edit","args":{"path":"`+path+`","command":"undo_edit"}}}`), 200, "", ""},
		{"it is back", fileRequest("GET", path, ""), 200, "one", sumOne},
		{"no path", request{method: "PUT", path: "/v1/files", body: "x"}, 422, "", ""},
		{"an empty path", fileRequest("PUT", "", "x"), 400, "", ""},
		{"a mode with set-uid", request{method: "PUT", path: "/v1/files?mode=4755&path=" + url.QueryEscape(path), body: "x"}, 422, "", ""},
	} {
		w := step.q.send(s)
		if etag := strings.Trim(w.Header().Get("Etag"), `"`); w.Code != step.status || step.body != "" && w.Body.String() != step.body || etag != step.etag {
			t.Fatalf("%s: got %d %q %q, want %d %q %q", step.name, w.Code, etag, w.Body, step.status, step.etag, step.body)
		}
		route, _, _ := strings.Cut(step.q.path, "?")
		if err := spec.CheckResponse(step.q.method, route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	w := request{method: "PUT", path: "/v1/files?mode=0750&path=" + url.QueryEscape(path), body: "two"}.send(s)
	if got := fileRequest("HEAD", path, "").send(s).Header().Get("X-File-Mode"); w.Code != 200 || got != "0750" {
		t.Errorf("got %d and mode %s", w.Code, got)
	}
	var recorded struct {
		Kind, Text, State string
		Observation       struct{ Extras struct{ SHA256 string } }
	}
	must(t, json.Unmarshal(get("/v1/actions/a").send(s).Body.Bytes(), &recorded))
	if recorded.Kind != "write_file" || recorded.Text != path || recorded.State != "done" || recorded.Observation.Extras.SHA256 != sumOne {
		t.Errorf("recorded: %+v", recorded)
	}
}

// A relative path begins at the working directory, which /server_info names.
func TestRelativePaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := fileServer(t, func(cfg *server.Config) { cfg.WorkingDir, cfg.User = dir, "agent" })
	for _, step := range []struct {
		q      request
		status int
		body   string // "" for any
	}{
		{fileRequest("PUT", "sub/f", "one"), 201, ""},
		{fileRequest("GET", "sub/../sub/f", ""), 200, "one"},
		{fileRequest("GET", "/sub/f", ""), 404, ""},
		{tarball("/v1/unpack?path=sub", tarOf(t, &tar.Header{Name: "g", Typeflag: tar.TypeReg, Size: 3, Mode: 0o644})), 200, `{"entries":1}`},
		{fileRequest("GET", "sub/g", ""), 200, "xxx"},
		{fileRequest("DELETE", "sub/f", ""), 200, ""},
		{fileRequest("HEAD", "sub/f", ""), 404, ""},
		{get("/download_files?path=sub"), 400, ""},
	} {
		if w := step.q.send(s); w.Code != step.status || step.body != "" && w.Body.String() != step.body {
			t.Errorf("%s %s: got %d %s, want %d %s", step.q.method, step.q.path, w.Code, w.Body, step.status, step.body)
		}
	}
	if status, members, _ := packed(t, s, "sub"); status != 200 || !slices.Equal(members, []string{"sub/", "sub/g=xxx"}) {
		t.Errorf("packed: %d %q", status, members)
	}
	var info api.ServerInfo
	must(t, json.Unmarshal(get("/server_info").send(s).Body.Bytes(), &info))
	if info.WorkingDir != dir || info.User != "agent" {
		t.Errorf("got the working directory %q and the user %q", info.WorkingDir, info.User)
	}
}

func TestFileBytesRefused(t *testing.T) {
	t.Parallel()
	s := fileServer(t)
	dir := t.TempDir()
	fifo, loop, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "loop"), filepath.Join(dir, "link")
	must(t, errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("loop", loop), os.Symlink("/proc/self/environ", link)))
	for _, path := range []string{dir, fifo, loop, link, "/dev/zero", "/proc/self/environ", "/proc/kmsg", "/sys/kernel/uevent_seqnum", "/proc/self/fd/0"} {
		for _, q := range []request{fileRequest("GET", path, ""), fileRequest("HEAD", path, ""), fileRequest("PUT", path, "x"), fileRequest("PUT", path+"/f", "x")} {
			if q.method != "PUT" && path == "/sys/kernel/uevent_seqnum" {
				if _, err := os.Stat(path); err != nil {
					continue
				}
			}
			if strings.HasPrefix(q.path, "/v1/files?path="+url.QueryEscape(dir+"/f")) && q.method == "PUT" && path == dir {
				continue // a new file
			}
			if w := q.send(s); w.Code/100 != 4 {
				t.Errorf("%s %s: got %d %s", q.method, q.path, w.Code, w.Body)
			}
		}
	}
	for _, path := range []string{dir, fifo, "/dev/zero", "/proc/self/environ"} {
		if w := fileRequest("DELETE", path, "").send(s); w.Code/100 != 4 {
			t.Errorf("DELETE %s: got %d %s", path, w.Code, w.Body)
		}
	}
}

// A refusal because of a file says in one word what is wrong, with the path and the system's error.
func TestFileFaults(t *testing.T) {
	t.Parallel()
	s, spec, dir := fileServer(t), contract.NewSpec(t), t.TempDir()
	file, none, fifo := filepath.Join(dir, "f"), filepath.Join(dir, "none"), filepath.Join(dir, "fifo")
	must(t, errors.Join(os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600)))
	pack := func(path string) request { return get("/v1/pack?path=" + url.QueryEscape(path)) }
	unpack := func(path string) request { return tarball("/v1/unpack?path="+url.QueryEscape(path), "") }
	for _, tt := range []struct {
		q           request
		status      int
		code, errno string
		path        string
	}{
		{fileRequest("GET", none, ""), 404, "file_not_found", "ENOENT", none},
		{fileRequest("DELETE", none, ""), 404, "file_not_found", "", none},
		{pack(none), 404, "file_not_found", "ENOENT", none},
		{unpack(none), 404, "file_not_found", "ENOENT", none},
		{fileRequest("GET", dir, ""), 400, "is_directory", "", dir},
		{fileRequest("PUT", dir, "x"), 400, "is_directory", "", dir},
		{fileRequest("PUT", dir+"/none/", "x"), 400, "is_directory", "", dir + "/none/"},
		{fileRequest("DELETE", dir, ""), 400, "is_directory", "", dir},
		{fileRequest("GET", fifo, ""), 400, "not_regular_file", "", fifo},
		{fileRequest("PUT", fifo, "x"), 400, "not_regular_file", "", fifo},
		{pack(fifo), 400, "not_regular_file", "", fifo},
		{fileRequest("GET", file+"/x", ""), 400, "not_directory", "ENOTDIR", file + "/x"},
		{fileRequest("PUT", file+"/x", "x"), 400, "not_directory", "ENOTDIR", file + "/x"},
		{unpack(file), 400, "not_directory", "ENOTDIR", file},
		{fileRequest("GET", "/proc/self/environ", ""), 403, "permission_denied", "EACCES", "/proc/self/environ"},
		{fileRequest("PUT", file, "x", "If-None-Match", "*"), 412, "conflict", "", file},
	} {
		w := tt.q.send(s)
		var said struct{ Errors []api.Fault }
		err := json.Unmarshal(w.Body.Bytes(), &said)
		want := []api.Fault{{Code: tt.code, Path: tt.path, Errno: tt.errno}}
		if err != nil || w.Code != tt.status || !slices.Equal(said.Errors, want) {
			t.Errorf("%s %s: got %d %s, want %d %+v", tt.q.method, tt.q.path, w.Code, w.Body, tt.status, want)
		}
		route, _, _ := strings.Cut(tt.q.path, "?")
		if err := spec.CheckResponse(tt.q.method, route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Errorf("%s %s: %v", tt.q.method, tt.q.path, err)
		}
	}
}

// A body that is cut leaves the old file, and its id free.
func TestFileBodyCut(t *testing.T) {
	t.Parallel()
	s := fileServer(t)
	srv := httptest.NewServer(s)
	defer srv.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	must(t, err)
	_, err = io.WriteString(conn, "PUT /v1/files?path="+url.QueryEscape(path)+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: cut\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 500))
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
	if got := read(t, path); got != "old" {
		t.Errorf("the file has %q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v %v", entries, err)
	}
	if w := fileRequest("PUT", path, "new", "Idempotency-Key", "cut").send(s); w.Code != 200 || read(t, path) != "new" {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// The journal knows that a file changes before it does: a server that is killed meanwhile
// must not change it again when the client asks again.
func TestFileChangeIsRecordedFirst(t *testing.T) {
	t.Parallel()
	var s *server.Server
	look := func() {
		if w := (request{method: "GET", path: "/v1/actions/first"}).send(s); !strings.Contains(w.Body.String(), `"state":"running"`) {
			t.Errorf("while the file changes: %d %s", w.Code, w.Body)
		}
	}
	s = newServer(t, func(cfg *server.Config) {
		cfg.StageFile = func(context.Context, string) (server.Incoming, error) { return lookingFile(look), nil }
		cfg.RemoveFile = func(context.Context, string, api.FileConditions) (api.Observation, error) {
			look()
			return nil, api.Unmet("another file")
		}
	})
	for _, method := range []string{"PUT", "DELETE"} { // each is refused and leaves the id
		if w := fileRequest(method, "/f", "new", "Idempotency-Key", "first").send(s); w.Code != http.StatusPreconditionFailed {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
}

// lookingFile is called when it would take the place of a file.
type lookingFile func()

func (f lookingFile) Fill(content io.Reader) (string, int64, error) {
	n, err := io.Copy(io.Discard, content)
	return sumOne, n, err
}

func (f lookingFile) Put(context.Context, api.FileConditions, *fs.FileMode) (api.Observation, error) {
	f()
	return nil, api.Unmet("another file")
}

func (f lookingFile) Discard() {}

// A range at the end of a file of 10 GB is read without the rest.
func TestHugeSparseFile(t *testing.T) {
	t.Parallel()
	s := fileServer(t)
	path := filepath.Join(t.TempDir(), "huge")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	const size = 10 << 30
	_, err = f.WriteAt([]byte("end"), size-3)
	must(t, err)
	w := fileRequest("GET", path, "", "Range", "bytes=-3").send(s)
	if w.Code != 206 || w.Body.String() != "end" || w.Header().Get("Content-Range") != "bytes 10737418237-10737418239/10737418240" || w.Header().Get("Etag") != "" {
		t.Errorf("got %d %q %v", w.Code, w.Body, w.Header())
	}
}

// A file of terabytes, which costs an agent nothing, is not hashed; its ranges are read.
func TestFileTooLargeForATag(t *testing.T) {
	t.Parallel()
	s := fileServer(t)
	path := filepath.Join(t.TempDir(), "huge")
	must(t, os.WriteFile(path, []byte("begin"), 0o600))
	must(t, os.Truncate(path, 1<<40))
	for _, step := range []struct {
		q      request
		status int
	}{
		{fileRequest("HEAD", path, ""), 200},
		{fileRequest("HEAD", path, "", "If-Match", `"`+sumOne+`"`), 412},
		{fileRequest("GET", path, "", "If-None-Match", `"`+sumOne+`"`, "Range", "bytes=0-4"), 206},
	} {
		if w := step.q.send(s); w.Code != step.status || w.Header().Get("Etag") != "" {
			t.Errorf("%s %v: got %d %v", step.q.method, step.q.header, w.Code, w.Header())
		}
	}
}

// Readers see the old file or a new one, whatever writers do, and two with the same
// condition do not both succeed.
func TestFileWritersRace(t *testing.T) {
	t.Parallel()
	s := fileServer(t)
	path := filepath.Join(t.TempDir(), "f")
	versions := [][]byte{bytes.Repeat([]byte("a"), 300_000), bytes.Repeat([]byte("b"), 200_000), bytes.Repeat([]byte("c"), 100)}
	must(t, os.WriteFile(path, versions[0], 0o600))
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for _, v := range versions {
		writers.Go(func() {
			for range 10 {
				if w := fileRequest("PUT", path, string(v)).send(s); w.Code != 200 && w.Code != http.StatusConflict {
					t.Errorf("PUT: %d %s", w.Code, w.Body)
				}
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
			got, err := os.ReadFile(path)
			if err != nil || len(got) == 0 || len(bytes.TrimRight(got, string(got[:1]))) != 0 || !(len(got) == 300_000 || len(got) == 200_000 || len(got) == 100) {
				t.Errorf("read %d bytes, %v", len(got), err)
				return
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	etag := fileRequest("HEAD", path, "").send(s).Header().Get("Etag")
	var same sync.WaitGroup
	codes := make([]int, 4)
	for i := range codes {
		same.Go(func() { codes[i] = fileRequest("PUT", path, strings.Repeat("d", i+1), "If-Match", etag).send(s).Code })
	}
	same.Wait()
	won := 0
	for _, code := range codes {
		if code == 200 {
			won++
		} else if code != 412 {
			t.Errorf("got %d", code)
		}
	}
	if won != 1 {
		t.Errorf("%d of the same condition succeeded: %v", won, codes)
	}
}
