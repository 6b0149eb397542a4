package transfer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/transfer"
	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/internal/testhelp"
)

// open follows no link.
func open(path string) (*os.File, error) {
	f, err := hostpath.Open(path, hostpath.NoLinks)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Reader()
}

// pack packs a source under a name.
func pack(t *testing.T, source, name string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	p := &archive.Packer{Out: tar.NewWriter(&out)}
	if err := errors.Join(transfer.Pack(p, source, name, open), p.Out.Close()); err != nil {
		t.Fatal(err)
	}
	return &out
}

func write(t *testing.T, file, text string) {
	t.Helper()
	testhelp.WriteFile(t, file, text, 0o644)
}

// TestUnpack puts files and directories where docker cp does.
func TestUnpack(t *testing.T) {
	t.Parallel()
	src, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, src+"/dir/f", "text")
	write(t, src+"/file", "text")
	for _, tt := range []struct {
		name, source string
		content      bool
		dest, want   string // the file that is there then, with this text
		err          error
	}{
		{"file to nothing", "file", false, "new", "new", nil},
		{"file into a directory", "file", false, "there", "there/file", nil},
		{"file into a directory, slash", "file", false, "there/", "there/file", nil},
		{"file over a file", "file", false, "old", "old", nil},
		{"file over a link", "file", false, "link", "link", nil},
		{"file to a directory that is not there", "file", false, "new/", "", fs.ErrNotExist},
		{"file below nothing", "file", false, "no/new", "", fs.ErrNotExist},
		{"directory to nothing", "dir", false, "new", "new/f", nil},
		{"directory to nothing, slash", "dir", false, "new/", "new/f", nil},
		{"directory into a directory", "dir", false, "there", "there/dir/f", nil},
		{"content into a directory", "dir", true, "there", "there/f", nil},
		{"content to nothing", "dir", true, "new", "new/f", nil},
		{"directory over a file", "dir", false, "old", "", archive.ErrExists},
		{"directory over a link to one", "dir", false, "dest/../dirlink", "", hostpath.ErrLink},
		{"through a link", "file", false, "dirlink/f", "", hostpath.ErrLink},
		{"into a directory with a link of that name", "dir", false, "trap", "", archive.ErrExists},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/old", "old")
			write(t, dir+"/target", "mine")
			err = errors.Join(os.Mkdir(dir+"/there", 0o755), os.Mkdir(dir+"/trap", 0o755), os.Mkdir(dir+"/dest", 0o755),
				os.Symlink("target", dir+"/link"), os.Symlink("there", dir+"/dirlink"), os.Symlink("../there", dir+"/trap/dir"))
			if err != nil {
				t.Fatal(err)
			}
			u := transfer.Unpacking{Dest: dir + "/" + tt.dest, Name: tt.source, Content: tt.content, Open: open}
			if err := u.Unpack(pack(t, src+"/"+tt.source, tt.source)); !errors.Is(err, tt.err) || tt.err == nil && err != nil {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if tt.want != "" {
				if got, err := os.ReadFile(filepath.Join(dir, tt.want)); err != nil || string(got) != "text" {
					t.Errorf("%s: got %q, %v", tt.want, got, err)
				}
			}
			if got, err := os.ReadFile(dir + "/target"); err != nil || string(got) != "mine" {
				t.Errorf("what the link leads to: got %q, %v", got, err)
			}
			if tt.err != nil {
				if entries, err := os.ReadDir(dir + "/there"); err != nil || len(entries) != 0 {
					t.Errorf("there is %v, %v", entries, err)
				}
			}
		})
	}
}

// TestUnpackOneFile takes no second member for a file.
func TestUnpackOneFile(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range []string{"f", "other"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	u := transfer.Unpacking{Dest: dir + "/new", Name: "f", Open: open}
	if err := u.Unpack(&out); !errors.Is(err, archive.ErrHostile) {
		t.Errorf("got %v, want ErrHostile", err)
	}
	if _, err := os.Lstat(dir + "/other"); err == nil {
		t.Error("the second file is there")
	}
}

// A copy that is cut leaves the file that was there, and nothing beside it.
func TestUnpackCut(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/f", "before")
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	u := transfer.Unpacking{Dest: dir, Name: "f", Open: open}
	if err := u.Unpack(&out); err == nil {
		t.Error("no error")
	}
	got, err := os.ReadFile(dir + "/f")
	entries, _ := os.ReadDir(dir)
	if string(got) != "before" || err != nil || len(entries) != 1 {
		t.Errorf("got %q, %v beside %v", got, err, entries)
	}
}

// TestPackThroughLink packs a link as a link, and reads through none.
func TestPackThroughLink(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/secret/f", "secret")
	write(t, dir+"/share/g", "text")
	if err := errors.Join(os.Symlink("../secret", dir+"/share/d"), os.Symlink("../secret/f", dir+"/share/l")); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"/share", "/share/.", "/share/l", "/share/d"} {
		if got := pack(t, dir+source, "x").String(); strings.Contains(got, "secret\x00") && !strings.Contains(got, "../secret") {
			t.Errorf("%s: got %q", source, got)
		}
	}
	p := &archive.Packer{Out: tar.NewWriter(&bytes.Buffer{})}
	for _, source := range []string{"/share/d/f", "/share/d/."} {
		if err := transfer.Pack(p, dir+source, "x", open); !errors.Is(err, hostpath.ErrLink) {
			t.Errorf("%s: got %v, want ErrLink", source, err)
		}
	}
}
