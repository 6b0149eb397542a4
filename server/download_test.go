package server_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// errDenied is what the kernel says to a user without rights.
var errDenied = &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}

// sendFile uploads over a connection, reading the file while it is sent.
func sendFile(tb testing.TB, srv *httptest.Server, destination, name string, content io.Reader) *http.Response {
	tb.Helper()
	pr, pw := io.Pipe()
	w := multipart.NewWriter(pw)
	go func() {
		part, err := w.CreateFormFile("file", name)
		if err == nil {
			_, err = io.Copy(part, content)
		}
		pw.CloseWithError(errors.Join(err, w.Close()))
	}()
	resp, err := srv.Client().Post(srv.URL+"/upload_file?destination="+url.QueryEscape(destination), w.FormDataContentType(), pr)
	must(tb, err)
	return resp
}

func download(s *server.Server, path string) *httptest.ResponseRecorder {
	return get("/download_files?path=" + url.QueryEscape(path)).send(s)
}

// unzip returns the content of an archive by name.
func unzip(tb testing.TB, archive []byte) (map[string]string, *zip.Reader) {
	tb.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	must(tb, err)
	got := map[string]string{}
	for _, f := range r.File {
		if f.Method != zip.Store {
			tb.Errorf("%s: got method %d, want stored", f.Name, f.Method)
		}
		rc, err := f.Open()
		must(tb, err)
		b, err := io.ReadAll(rc)
		must(tb, err)
		must(tb, rc.Close())
		if _, twice := got[f.Name]; twice {
			tb.Errorf("%s: is there twice", f.Name)
		}
		got[f.Name] = string(b)
	}
	return got, r
}

func wantFiles(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	for name, content := range want {
		if g, ok := got[name]; !ok || g != content {
			tb.Errorf("%s: got %.40q (there: %t), want %.40q", name, g, ok, content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			tb.Errorf("%s: is there and should not", name)
		}
	}
}

func TestDownloadDirectory(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dir := outer + "/project"
	must(t, os.MkdirAll(dir+"/sub/.git", 0o700))
	must(t, os.MkdirAll(dir+"/empty", 0o700))
	must(t, os.WriteFile(outer+"/outside", []byte("outside"), 0o600))
	large := strings.Repeat("0123456789", 100_000)
	want := map[string]string{
		"a.txt":             "a",
		".hidden":           "h",
		"sub/.git/config":   "c",
		"sub/ünï \n.txt":    "u",
		"large":             large,
		"nothing":           "",
		"run.sh":            "#!",
		"sub/link":          "a",
		"outlink":           "outside",
		"sub/not-utf8-\xff": "b",
	}
	for name, content := range want {
		if !strings.HasSuffix(name, "link") {
			must(t, os.WriteFile(dir+"/"+name, []byte(content), 0o600))
		}
	}
	must(t, os.Chmod(dir+"/run.sh", 0o755))
	must(t, os.Symlink("../a.txt", dir+"/sub/link"))
	must(t, os.Symlink(outer+"/outside", dir+"/outlink"))
	must(t, os.Symlink("sub", dir+"/dirlink"))
	must(t, os.Symlink("..", dir+"/sub/up"))
	must(t, os.Symlink("nothing-there", dir+"/dangling"))
	must(t, os.Symlink("loop", dir+"/loop"))
	must(t, os.Symlink("/dev/zero", dir+"/zero"))
	must(t, os.Symlink("fifo", dir+"/fifolink"))
	must(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	must(t, os.Symlink(dir, outer+"/way"))
	must(t, syscall.Bind(socket, &syscall.SockaddrUnix{Name: short(t, dir) + "/socket"}))

	tests := []struct{ path, disposition string }{
		{dir, `attachment; filename="project.zip"`},
		{dir + "/", `attachment; filename=".zip"`},
		{outer + "/way", `attachment; filename="way.zip"`},
	}
	for _, tt := range tests {
		w := download(newServer(t), tt.path)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/zip" || w.Header().Get("Content-Disposition") != tt.disposition {
			t.Fatalf("%s: got %d %v", tt.path, w.Code, w.Header())
		}
		got, r := unzip(t, w.Body.Bytes())
		wantFiles(t, got, want)
		if r.Comment != "" {
			t.Errorf("got comment %q, want none", r.Comment)
		}
		i := slices.IndexFunc(r.File, func(f *zip.File) bool { return f.Name == "run.sh" })
		if i < 0 || r.File[i].Mode() != 0o755 {
			t.Errorf("run.sh: want mode 0755")
		}
	}
}

// short returns a path to a directory that fits into a socket's address.
func short(tb testing.TB, dir string) string {
	tb.Helper()
	d, err := os.Open(dir)
	must(tb, err)
	tb.Cleanup(func() { d.Close() })
	return "/proc/self/fd/" + itoa(int(d.Fd()))
}

// An agent that puts a link in the place of a directory, once that was listed, gets nothing
// from behind the link into the zip.
func TestDownloadFollowsNoNewLink(t *testing.T) {
	t.Parallel()
	outer, dir := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(outer+"/secret", []byte("s"), 0o600))
	must(t, os.Mkdir(dir+"/d", 0o700))
	must(t, os.WriteFile(dir+"/d/mine", []byte("m"), 0o600))
	for swapAfter := 1; swapAfter <= 4; swapAfter++ {
		calls := 0
		s := newServer(t, func(cfg *server.Config) {
			cfg.As = func(do func() error) error {
				err := do()
				if calls++; calls == swapAfter {
					must(t, os.Rename(dir+"/d", dir+"/e"))
					must(t, os.Symlink(outer, dir+"/d"))
				}
				return err
			}
		})
		got, _ := unzip(t, download(s, dir).Body.Bytes())
		for name := range got {
			if strings.HasSuffix(name, "secret") {
				t.Errorf("swapped after step %d: got %q", swapAfter, name)
			}
		}
		must(t, os.Remove(dir+"/d"))
		must(t, os.Rename(dir+"/e", dir+"/d"))
	}
}

func TestDownloadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct{ name, disposition string }{
		{"a.txt", `attachment; filename="a.txt.zip"`},
		{"ü\".txt", `attachment; filename*=utf-8''%C3%BC%22.txt.zip`},
		{"a\r\nX-Evil: 1", `attachment; filename*=utf-8''a%0D%0AX-Evil:%201.zip`},
	}
	for _, tt := range tests {
		must(t, os.WriteFile(dir+"/"+tt.name, []byte("content"), 0o600))
		w := download(newServer(t), dir+"/"+tt.name)
		if w.Code != 200 || w.Header().Get("Content-Disposition") != tt.disposition {
			t.Errorf("%q: got %d %s, want 200 %s", tt.name, w.Code, w.Header().Get("Content-Disposition"), tt.disposition)
		}
		got, _ := unzip(t, w.Body.Bytes())
		wantFiles(t, got, map[string]string{tt.name: "content"})
	}
}

func TestDownloadRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/f", nil, 0o600))
	must(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	must(t, os.Symlink("nothing", dir+"/dangling"))
	tests := []struct {
		name, path string
		status     int
	}{
		{"relative", "f", 400},
		{"empty", "", 400},
		{"missing", dir + "/nope", 404},
		{"dangling", dir + "/dangling", 404},
		{"file as a directory", dir + "/f/", 400},
		{"below a file", dir + "/f/x", 400},
		{"FIFO", dir + "/fifo", 400},
		{"device", "/dev/null", 400},
		{"NUL", dir + "\x00", 400},
		{"too long", "/" + strings.Repeat("x", 5000), 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := download(newServer(t), tt.path)
			if w.Code != tt.status || w.Header().Get("Content-Type") != jsonType || w.Header().Get("Content-Disposition") != "" {
				t.Errorf("got %d %v %s, want %d in JSON", w.Code, w.Header(), w.Body, tt.status)
			}
			field(t, w.Body.Bytes(), "detail")
		})
	}
}

// A file that the user may not read is left out, and the zip says so.
func TestDownloadSkipsUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a", []byte("a"), 0o600))
	must(t, os.WriteFile(dir+"/b", []byte("b"), 0o600))
	calls := 0
	s := newServer(t, func(cfg *server.Config) {
		cfg.As = func(do func() error) error {
			if calls++; calls == 3 { // after the check and the list: the first file
				return errDenied
			}
			return do()
		}
	})
	got, r := unzip(t, download(s, dir).Body.Bytes())
	wantFiles(t, got, map[string]string{"b": "b"})
	if want := "Not readable, and left out: 1\n\"a\": permission denied"; r.Comment != want {
		t.Errorf("got comment %q, want %q", r.Comment, want)
	}
	s = newServer(t, func(cfg *server.Config) { cfg.As = func(func() error) error { return errDenied } })
	if w := download(s, dir); w.Code != 400 {
		t.Errorf("got %d %s for a directory that cannot be read, want 400", w.Code, w.Body)
	}
}

// changing changes a file each time something was sent.
type changing struct {
	*httptest.ResponseRecorder
	change func()
}

func (c changing) Write(p []byte) (int, error) {
	c.change()
	return c.ResponseRecorder.Write(p)
}

// A file that changes while it is read has an end, and the zip stays whole.
func TestDownloadChangingFile(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	tests := []struct {
		name   string
		change func(path string) error
		least  int
	}{
		{"grows", func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(make([]byte, size))
			return errors.Join(err, f.Close())
		}, size},
		{"shrinks", func(path string) error { return os.Truncate(path, 10) }, 0},
		{"goes away", os.RemoveAll, size},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir() + "/f"
			must(t, os.WriteFile(path, make([]byte, size), 0o600))
			w := changing{httptest.NewRecorder(), func() { must(t, tt.change(path)) }}
			newServer(t).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/download_files?path="+path, nil))
			got, _ := unzip(t, w.Body.Bytes())
			if n := len(got["f"]); n < tt.least || n > size {
				t.Errorf("got %d bytes, want %d to %d", n, tt.least, size)
			}
		})
	}
}

// A client that leaves ends the reading, and half an archive does not end as
// if it were a whole one.
func TestDownloadClientLeaves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 100 {
		must(t, os.WriteFile(dir+"/"+itoa(i), make([]byte, 100_000), 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := changing{httptest.NewRecorder(), cancel}
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("got %v, want the connection aborted", err)
			}
		}()
		newServer(t).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/download_files?path="+dir, nil))
	}()
	if n := w.Body.Len(); n > 300_000 {
		t.Errorf("got %d bytes after the client left", n)
	}
}

func TestListFiles(t *testing.T) {
	t.Parallel()
	var dir string
	s := newServer(t, func(cfg *server.Config) { dir = cfg.WorkingDir })
	for _, d := range []string{"b", "A", "empty", ".hid", "A/inner", "b-c"} {
		must(t, os.Mkdir(dir+"/"+d, 0o700))
	}
	for _, f := range []string{"z.txt", "Y.txt", ".dot", "a&<b>", "é", "A/f"} {
		must(t, os.WriteFile(dir+"/"+f, nil, 0o600))
	}
	must(t, os.Symlink("A", dir+"/dirlink"))
	must(t, os.Symlink("z.txt", dir+"/filelink"))
	must(t, os.Symlink("nothing", dir+"/dangling"))
	must(t, syscall.Mkfifo(dir+"/Pipe", 0o600))
	all := `[".hid/","A/","b-c/","b/","dirlink/","empty/",".dot","a&<b>","filelink","Pipe","Y.txt","z.txt","é"]`
	tests := []struct{ name, body, want string }{
		{"absent", `{}`, all},
		{"null", `{"path":null}`, all},
		{"empty", `{"path":""}`, all},
		{"dot", `{"path":"."}`, all},
		{"absolute", `{"path":"` + dir + `"}`, all},
		{"relative", `{"path":"A"}`, `["inner/","f"]`},
		{"upwards", `{"path":"A/inner/.."}`, `["inner/","f"]`},
		{"link", `{"path":"dirlink/"}`, `["inner/","f"]`},
		{"nothing in it", `{"path":"empty"}`, `[]`},
		{"missing", `{"path":"nope"}`, `[]`},
		{"file", `{"path":"z.txt"}`, `[]`},
		{"FIFO", `{"path":"Pipe"}`, `[]`},
		{"other members", `{"path":"A","recursive":true}`, `["inner/","f"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, contentType := range []string{"", jsonType, "text/plain"} {
				w := request{method: "POST", path: "/list_files", contentType: contentType, body: tt.body}.send(s)
				if w.Code != 200 || w.Body.String() != tt.want {
					t.Errorf("got %d %s\nwant 200 %s", w.Code, w.Body, tt.want)
				}
			}
		})
	}
}

func TestListFilesAsUser(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(cfg *server.Config) { cfg.As = func(func() error) error { return errDenied } })
	if w := post("/list_files", `{"path":"/"}`).send(s); w.Body.String() != "[]" {
		t.Errorf("got %s for a directory the user may not read, want []", w.Body)
	}
	s = newServer(t, func(cfg *server.Config) { cfg.As = func(func() error) error { return api.TooMany("files hang") } })
	if w := post("/list_files", `{"path":"/"}`).send(s); w.Code != http.StatusTooManyRequests {
		t.Errorf("got %d %s where nothing could be looked at, want 429", w.Code, w.Body)
	}
}
