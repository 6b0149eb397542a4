package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
	"github.com/actiond/actiond/server/files"
)

func itoa(n int) string { return strconv.Itoa(n) }

// form returns the body of an upload as the stock client sends it, and its
// content type.
func form(tb testing.TB, name string, content []byte) (body, contentType string) {
	tb.Helper()
	return formOf(tb, part{fmt.Sprintf(`form-data; name="file"; filename="%s"`, name), content})
}

// part is a field of a form.
type part struct {
	disposition string
	content     []byte
}

func formOf(tb testing.TB, parts ...part) (body, contentType string) {
	tb.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, p := range parts {
		pw, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {p.disposition}, "Content-Type": {"application/octet-stream"}})
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := pw.Write(p.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.String(), w.FormDataContentType()
}

// upload sends a file to a directory.
func upload(tb testing.TB, s *server.Server, destination, name string, content []byte) *httptest.ResponseRecorder {
	tb.Helper()
	body, contentType := form(tb, name, content)
	return request{
		method: "POST", path: "/upload_file?recursive=false&destination=" + url.QueryEscape(destination),
		contentType: contentType, body: body,
	}.send(s)
}

// empty fails the test when something is in a directory.
func empty(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		tb.Errorf("%s is left in %s", e.Name(), dir)
	}
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	b := testhelp.ReadFile(tb, path)
	return string(b)
}

func TestUpload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var temp string
	s := newServer(t, func(cfg *server.Config) { temp = cfg.TempDir })
	tests := []struct {
		name, destination, file, content string
	}{
		{"new", dir, "up.txt", "hello"},
		{"again", dir, "up.txt", "hi"},
		{"empty", dir, "up.txt", ""},
		{"longer", dir, "up.txt", strings.Repeat("x", 1<<20)},
		{"new directories", dir + "/new/d", "up.txt", "a"},
		{"slash behind", dir + "/", "b.txt", "b"},
		{"dots", dir + "/new/../other", "c.txt", "c"},
		{"letters", dir, "ünï cødé.txt", "d"},
		{"backslash", dir, `..\\x`, "e"}, // quoted: one backslash
		{"hidden", dir, "...", "f"},
		{"percent", dir, "a%2Fb", "g"},
		{"capitals", dir, "x.ZIP", "no zip"},
	}
	for _, tt := range tests { // one after another, on the same files
		w := upload(t, s, tt.destination, tt.file, []byte(tt.content))
		if w.Code != 200 {
			t.Errorf("%s: got %d %s, want 200", tt.name, w.Code, w.Body)
			continue
		}
		if got := read(t, tt.destination+"/"+strings.ReplaceAll(tt.file, `\\`, `\`)); got != tt.content {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.content)
		}
	}
	empty(t, temp)
}

// A file that is there keeps its identity: it may be mounted, linked or open.
func TestUploadKeepsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := dir + "/f"
	testhelp.WriteFile(t, path, "old and long", 0o751)
	if err := os.Chmod(path, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", dir+"/soft"); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	guarded := 0
	s := newServer(t, func(cfg *server.Config) {
		cfg.WriteInPlace = func(_ *os.File, write func() error) error {
			guarded++
			return write()
		}
	})
	for i, name := range []string{"f", "hard", "soft"} {
		if w := upload(t, s, dir, name, []byte(name)); w.Code != http.StatusOK {
			t.Fatalf("got %d %s, want 200", w.Code, w.Body)
		}
		if guarded != i+1 {
			t.Errorf("%s: wrote %d files under protection, want %d", name, guarded, i+1)
		}
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) || before.Mode() != after.Mode() || read(t, path) != name {
			t.Errorf("%s: got %v %v %q, want the same file with new content", name, after.Mode(), os.SameFile(before, after), read(t, path))
		}
	}
	if target, err := os.Readlink(dir + "/soft"); err != nil || target != "f" {
		t.Errorf("got link %q, %v; want it kept", target, err)
	}
}

// A file that there is no room for leaves the old bytes, and nothing where there were
// none; so does a content that ends early leave no new file.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/old", []byte("old"), 0o600))
	before := tree(t, dir)
	trees := files.New(files.Config{As: func(do func() error) error { return do() }, Overrule: func() bool { return false }})
	put := func(name, content string, size int64) error {
		return trees.Put(t.Context(), dir, []files.Incoming{{Name: name, Size: size, Follow: true, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content)), nil
		}}})
	}
	for _, name := range []string{"old", "new"} {
		err := put(name, "new content", 1<<60)
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusInsufficientStorage {
			t.Errorf("%s: got %v, want a refusal with 507", name, err)
		}
	}
	if err := put("new", "short", 10); err == nil {
		t.Error("got no error for a content that ends early")
	}
	if after := tree(t, dir); after != before {
		t.Errorf("got  %s\nwant %s", after, before)
	}
}

// A file that is sent onto itself, as the stock tests do on a shared mount, is
// read whole before it is written.
func TestUploadOntoItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := dir + "/self"
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	testhelp.WriteFile(t, path, content, 0o600)
	srv := httptest.NewServer(newServer(t))
	t.Cleanup(srv.Close)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resp := sendFile(t, srv, dir, "self", f)
	if body := readAll(t, resp); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d %s, want 200", resp.StatusCode, body)
	}
	if got := read(t, path); got != string(content) {
		t.Errorf("got %d bytes, want the %d that were there", len(got), len(content))
	}
}

func TestUploadRefused(t *testing.T) {
	t.Parallel()
	file := func(name string) []part {
		return []part{{fmt.Sprintf(`form-data; name="file"; filename="%s"`, name), []byte("evil")}}
	}
	many := make([]part, 40)
	for i := range many {
		many[i] = part{fmt.Sprintf(`form-data; name="x%d"`, i), nil}
	}
	tests := []struct {
		name, query string // DIR stands for the directory
		parts       []part
		status      int
	}{
		{"upwards", "destination=DIR", file("../x"), 400},
		{"far upwards", "destination=DIR", file("../../../../../../x"), 400},
		{"two dots", "destination=DIR", file(".."), 400},
		{"dot", "destination=DIR", file("."), 400},
		{"absolute", "destination=DIR", file("/x"), 400},
		{"below", "destination=DIR", file("a/x"), 400},
		{"empty name", "destination=DIR", file(""), 400},
		{"NUL", "destination=DIR", file("a\x00b"), 422},
		{"NUL, encoded", "destination=DIR", []part{{`form-data; name="file"; filename*=utf-8''a%00b`, nil}}, 400},
		{"upwards, encoded", "destination=DIR", []part{{`form-data; name="file"; filename*=utf-8''..%2Fx`, nil}}, 400},
		{"too long", "destination=DIR", file(strings.Repeat("x", 300)), 400},
		{"no file name", "destination=DIR", []part{{`form-data; name="file"`, []byte("x")}}, 422},
		{"other field", "destination=DIR", []part{{`form-data; name="files"; filename="x"`, nil}}, 422},
		{"no field", "destination=DIR", nil, 422},
		{"two files", "destination=DIR", slices.Concat(file("a"), file("b")), 422},
		{"many fields", "destination=DIR", slices.Concat(many, file("a")), 422},
		{"no disposition", "destination=DIR", []part{{"", []byte("x")}}, 422},
		{"relative", "destination=d", file("a"), 400},
		{"empty destination", "destination=", file("a"), 400},
		{"NUL in destination", "destination=DIR%00x", file("a"), 400},
		{"through a file", "destination=DIR/there/d", file("a"), 400},
		{"into a file", "destination=DIR/there", file("a"), 400},
		{"onto a directory", "destination=DIR", file("sub"), 400},
		{"onto a FIFO", "destination=DIR", file("fifo"), 400},
		{"onto a dangling link", "destination=DIR", file("dangling"), 400},
		{"onto a loop", "destination=DIR", file("loop"), 400},
		{"kernel's", "destination=/proc/self", file("a"), 400},
		{"bad flag", "destination=DIR&recursive=maybe", file("a"), 422},
		{"empty flag", "destination=DIR&recursive=", file("a"), 422},
		{"bad query", "destination=DIR&recursive=%zz", file("a"), 422},
		{"recursive file", "destination=DIR&recursive=true", file("a"), 400},
		{"recursive in capitals", "destination=DIR&recursive=YES", file("a.tar"), 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "dir")
			must(t, os.MkdirAll(dir+"/sub", 0o700))
			must(t, os.WriteFile(dir+"/there", []byte("old"), 0o600))
			must(t, syscall.Mkfifo(dir+"/fifo", 0o600))
			must(t, os.Symlink("nothing", dir+"/dangling"))
			must(t, os.Symlink("loop", dir+"/loop"))
			before := tree(t, outer)
			var temp string
			s := newServer(t, func(cfg *server.Config) { temp = cfg.TempDir })
			body, contentType := formOf(t, tt.parts...)
			w := request{
				method: "POST", path: "/upload_file?" + strings.ReplaceAll(tt.query, "DIR", dir),
				contentType: contentType, body: body,
			}.send(s)
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			field(t, w.Body.Bytes(), "detail")
			if after := tree(t, outer); after != before {
				t.Errorf("got  %s\nwant %s", after, before)
			}
			empty(t, temp)
		})
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// tree describes everything below a directory, contents included.
func tree(tb testing.TB, dir string) string {
	tb.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %s", d.Type(), name)
		if d.Type().IsRegular() {
			fmt.Fprintf(&b, " %.40q", read(tb, path))
		}
		b.WriteString("\n")
		return err
	})
	must(tb, err)
	return b.String()
}

// Broken bodies are told apart from broken connections.
func TestUploadBrokenForm(t *testing.T) {
	t.Parallel()
	good, contentType := form(t, "a", []byte("content"))
	tests := []struct {
		name, contentType, body string
		status                  int
	}{
		{"no body", contentType, "", 422},
		{"no boundary", "multipart/form-data", good, 422},
		{"other boundary", "multipart/form-data; boundary=zzz", good, 422},
		{"cut in the header", contentType, good[:80], 422},
		{"cut in the content", contentType, good[:len(good)-70], 400},
		{"no JSON", "application/json", "{}", 422},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := request{method: "POST", path: "/upload_file?destination=" + dir, contentType: tt.contentType, body: tt.body}.send(newServer(t))
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			empty(t, dir)
		})
	}
}

func TestRecursiveFlag(t *testing.T) {
	t.Parallel()
	archive := zipOf(t, entry{name: "a.txt", content: "a"})
	tests := []struct {
		flag string
		want string // in the answer
	}{
		{"true", "true"},
		{"1", "true"},
		{"yes", "true"},
		{"on", "true"},
		{"t", "true"},
		{"y", "true"},
		{"True", "true"},
		{"false", "false"},
		{"0", "false"},
		{"no", "false"},
		{"off", "false"},
		{"f", "false"},
		{"n", "false"},
		{"OFF", "false"},
		{"maybe&recursive=true", "true"}, // the last one counts
	}
	for _, tt := range tests {
		t.Run(tt.flag, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			body, contentType := form(t, "x.zip", archive)
			w := request{method: "POST", path: "/upload_file?destination=" + url.QueryEscape(dir) + "&recursive=" + tt.flag, contentType: contentType, body: body}.send(newServer(t))
			if want := `{"filename":"x.zip","destination":"` + dir + `","recursive":` + tt.want + `}`; w.Code != 200 || w.Body.String() != want {
				t.Errorf("got %d %s, want 200 %s", w.Code, w.Body, want)
			}
			if got := read(t, dir+"/a.txt"); got != "a" {
				t.Errorf("got %q, want the zip unpacked", got)
			}
			if _, err := os.Lstat(dir + "/x.zip"); err == nil {
				t.Error("the zip is kept")
			}
		})
	}
}

// asNobody runs a function as an unprivileged user when the test is root, and
// as is otherwise.
func asNobody(do func() error) error {
	if os.Getuid() != 0 {
		return do()
	}
	const nobody = 65534
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(nobody); err != nil {
		return err
	}
	return errors.Join(do(), syscall.Setfsuid(0))
}

// A path that a caller names is made, opened and read with the rights of the
// sandbox's user.
func TestFilesAsUser(t *testing.T) {
	t.Parallel()
	archive := zipOf(t, entry{name: "a", content: "a"})
	tests := []struct {
		name string
		send func(s *server.Server, dir string) *httptest.ResponseRecorder
	}{
		{"upload into a closed directory", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return upload(t, s, dir+"/closed", "f", archive)
		}},
		{"upload below it", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return upload(t, s, dir+"/closed/new", "f", archive)
		}},
		{"upload onto a file of another user", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return upload(t, s, dir, "private", archive)
		}},
		{"zip into a closed directory", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return upload(t, s, dir+"/closed", "f.zip", archive)
		}},
		{"download of a closed directory", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return download(s, dir+"/closed")
		}},
		{"download of a private file", func(s *server.Server, dir string) *httptest.ResponseRecorder {
			return download(s, dir+"/private")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, os.Mkdir(dir+"/closed", 0o700))
			must(t, os.WriteFile(dir+"/private", []byte("old"), 0o600))
			if os.Getuid() != 0 {
				must(t, os.Chmod(dir+"/closed", 0))
				must(t, os.Chmod(dir+"/private", 0))
				t.Cleanup(func() {
					must(t, os.Chmod(dir+"/closed", 0o700))
					must(t, os.Chmod(dir+"/private", 0o600))
				})
			}
			w := tt.send(newServer(t, func(cfg *server.Config) { cfg.As = asNobody }), dir)
			if w.Code != 400 || !strings.Contains(w.Body.String(), "permission denied") {
				t.Errorf("got %d %s, want 400 and permission denied", w.Code, w.Body)
			}
		})
	}
}

// A failure to take the user's rights on is ours, and nothing is done without.
func TestUserCannotBeTakenOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newServer(t, func(cfg *server.Config) { cfg.As = func(func() error) error { return errDenied } })
	for _, name := range []string{"f", "f.zip"} {
		if w := upload(t, s, dir, name, zipOf(t, entry{name: "a", content: "a"})); w.Code != 500 {
			t.Errorf("%s: got %d %s, want 500", name, w.Code, w.Body)
		}
	}
	empty(t, dir)
}
