package server_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/server"
	"github.com/actiond/actiond/server/files"
)

const nobodyID = 65534

func ofNobody(cfg *server.Config) {
	cfg.As, cfg.Owner = asNobody, &files.Owner{UID: nobodyID, GID: nobodyID}
}

// owned returns who owns a file.
func owned(tb testing.TB, path string) int {
	tb.Helper()
	info, err := os.Lstat(path)
	must(tb, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// With the key a controller puts files where the user may not, and they become the
// user's. Neither links nor files of others are touched, and without a key, when the
// agent could have sent it, the user's rights are all there is.
func TestUploadBeyondTheUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root has other rights; TestFilesAsUser is what others see")
	}
	type outcome struct {
		status int
		path   string // "" where nothing may have changed
	}
	for _, tt := range []struct {
		name    string
		to      string // below the directory
		prepare func(dir string) error
		want    outcome
	}{
		{"a closed directory", "", nil, outcome{200, "f"}},
		{"new directories", "a/b/c", nil, outcome{200, "a/b/c/f"}},
		{"over a file that the user made read-only", "", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/f", []byte("old"), 0o440), os.Chown(dir+"/f", nobodyID, nobodyID))
		}, outcome{200, "f"}},
		{"over a file of root", "", func(dir string) error { return os.WriteFile(dir+"/f", []byte("old"), 0o644) }, outcome{400, ""}},
		{"over a directory", "", func(dir string) error { return os.Mkdir(dir+"/f", 0o755) }, outcome{400, ""}},
		{"over a link", "", func(dir string) error { return os.Symlink("/etc/evil", dir+"/f") }, outcome{400, ""}},
		{"over the user's link to root's file", "", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/passwd", []byte("root"), 0o644), os.Symlink("passwd", dir+"/f"), os.Lchown(dir+"/f", nobodyID, nobodyID))
		}, outcome{400, ""}},
		{"through a link", "link", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/real", 0o755), os.Symlink("real", dir+"/link"), os.Lchown(dir+"/link", nobodyID, nobodyID))
		}, outcome{400, ""}},
		{"upwards", "a/..", func(dir string) error { return os.Mkdir(dir+"/a", 0o755) }, outcome{400, ""}},
	} {
		for _, zipped := range []bool{false, true} {
			name := tt.name
			if zipped {
				name += ", zipped"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // the user passes through
					must(t, os.Chmod(d, 0o755))
				}
				if tt.prepare != nil {
					must(t, tt.prepare(dir))
				}
				file, content := "f", []byte("new")
				if zipped {
					file, content = "x.zip", zipOf(t, entry{name: "f", content: "new"})
				}
				before := tree(t, dir)
				keyless := newServer(t, ofNobody)
				if w := upload(t, keyless, dir+"/"+tt.to, file, content); w.Code != http.StatusBadRequest {
					t.Errorf("without a key: got %d %s, want 400", w.Code, w.Body)
				}
				if after := tree(t, dir); after != before {
					t.Fatalf("without a key it changed: got\n%s\nwant\n%s", after, before)
				}
				s := newServer(t, ofNobody, withKey)
				body, contentType := form(t, file, content)
				w := request{
					method: "POST", path: "/upload_file?destination=" + dir + "/" + tt.to, contentType: contentType, body: body, key: "s3cret",
				}.send(s)
				if w.Code != tt.want.status {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.want.status)
				}
				if tt.want.path == "" {
					if after := tree(t, dir); after != before {
						t.Errorf("got\n%s\nwant\n%s", after, before)
					}
					return
				}
				if got := read(t, dir+"/"+tt.want.path); got != "new" {
					t.Errorf("got %q, want the new content", got)
				}
				for p := tt.want.path; p != "."; p = filepath.Dir(p) {
					if got := owned(t, dir+"/"+p); got != nobodyID {
						t.Errorf("%s belongs to %d, want the user", p, got)
					}
				}
				if strings.Contains(tree(t, dir), ".actiond-") {
					t.Errorf("a temporary file is left:\n%s", tree(t, dir))
				}
			})
		}
	}
}

// After a failed upload the server removes the directories that it made. Meanwhile the
// user exchanges the directory above them for a link.
func TestFailedUploadFollowsNoLink(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root has other rights")
	}
	dir := t.TempDir()
	own, victim := filepath.Join(dir, "own"), filepath.Join(dir, "victim")
	must(t, os.MkdirAll(filepath.Join(victim, "new"), 0o755))
	must(t, os.Mkdir(own, 0o755))
	full := errors.New("the disk is full")
	trees := files.New(files.Config{
		As: asNobody, Owner: &files.Owner{UID: nobodyID, GID: nobodyID}, Overrule: func() bool { return true },
	})
	err := trees.Put(t.Context(), filepath.Join(own, "new"), []files.Incoming{{Name: "f", Open: func() (io.ReadCloser, error) {
		return nil, errors.Join(os.Rename(own, filepath.Join(dir, "moved")), os.Symlink(victim, own), full)
	}}})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want that %v", err, full)
	}
	if _, err := os.Lstat(filepath.Join(victim, "new")); err != nil {
		t.Errorf("the server removed a directory behind the link: %v", err)
	}
}

// The part of such a file that a crash leaves is removed by the next start, which the user could
// not do.
func TestOwnFilesAreRecovered(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root has other rights")
	}
	state, dir := t.TempDir(), t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	l, _, err := osfiles.OpenLedger(state, asNobody)
	must(t, err)
	f, err := l.CreateOwn(osfiles.System{}, "", dir, 0o600)
	must(t, err)
	must(t, l.Close())
	l, left, err := osfiles.OpenLedger(state, asNobody)
	must(t, err)
	defer l.Close()
	if _, err := os.Lstat(f.Name()); !os.IsNotExist(err) || len(left) > 0 {
		t.Errorf("got %v and %v, want it removed", err, left)
	}
}

// Only an error that no path of a caller can cause is the server's.
func TestFileErrors(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]int{
		syscall.ENOENT: 404, syscall.ENOSPC: 507, syscall.EACCES: 403, syscall.EISDIR: 400,
		syscall.ENODEV:     400, // a device file without a driver
		syscall.ENOTEMPTY:  409, // in the place of a file
		syscall.EBUSY:      400, // a mount point, such as /etc/hosts, or a swap file
		syscall.EXDEV:      400, // a rename over a mount
		syscall.EMLINK:     400, // a directory with the most entries its file system takes
		syscall.EILSEQ:     400, // a name that the file system cannot have
		syscall.EOPNOTSUPP: 400, // a socket
		syscall.EOVERFLOW:  400, // a file too large for the call
		syscall.EIO:        500, syscall.EMFILE: 500, syscall.ENOMEM: 500, syscall.EBADF: 500,
	} {
		got := 500
		if refusal, ok := errors.AsType[*api.Error](files.Error(&fs.PathError{Op: "open", Path: "/f", Err: errno}, "/f")); ok {
			got = refusal.Status
		}
		if got != want {
			t.Errorf("%v: got %d, want %d", errno, got, want)
		}
	}
}
