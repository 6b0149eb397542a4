package hostpath_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/hostpath"
)

// TestOpenIn keeps links and ".." inside of another root directory.
func TestOpenIn(t *testing.T) {
	t.Parallel()
	dir := tree(t, "root/", "root/etc/", "root/etc/f", "root/l -> /etc/f", "root/up -> ../../etc/f", "root/out -> /dev/null", "f")
	root, err := os.Open(dir + "/root")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"/etc/f", "/l", "/up", "/../etc/f", "/etc/../../l"} {
		f, err := hostpath.OpenIn(root, name, anyLink)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Path() != "/etc/f" {
			t.Errorf("%s: got %s, want /etc/f", name, f.Path())
		}
		f.Close()
	}
	for _, name := range []string{"/out", "/f", "/../f"} {
		if f, err := hostpath.OpenIn(root, name, anyLink); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, %v, want no such file", name, f, err)
		}
	}
}

// TestPipe opens what a shell gives for <(command), by the kernel's own link.
func TestPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := hostpath.Open("/dev/fd/"+strconv.Itoa(int(r.Fd())), hostpath.OwnLinks)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := f.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if data, err := io.ReadAll(file); err != nil || string(data) != "x" {
		t.Errorf("got %q, %v", data, err)
	}
}

// TestMakeDir makes what is missing, also behind links, but behind none that is refused.
func TestMakeDir(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		real string
		made bool
		err  error
	}{
		"d":                {"d", false, nil},
		"d/e/../f":         {"d/f", true, nil},
		"new/deep":         {"new/deep", true, nil},
		"g":                {"gone/far", true, nil},
		"g/x":              {"gone/far/x", true, nil},
		"back/x":           {"d/y/x", true, nil},
		"file":             {"", false, syscall.ENOTDIR},
		"file/x":           {"", false, syscall.ENOTDIR},
		"loop":             {"", false, syscall.ELOOP},
		"theirs/not-there": {"", false, refused},
	} {
		dir := tree(t, "d/", "file", "g -> gone/far", "back -> d/../d/y", "loop -> loop", "theirs -> nowhere")
		f, made, err := hostpath.MakeDir(dir+"/"+name, 0o700, func(l hostpath.Link) error {
			if strings.HasSuffix(l.Path, "/theirs") {
				return refused
			}
			return nil
		})
		if made != tc.made || !errors.Is(err, tc.err) {
			t.Errorf("%s: made %t, %v", name, made, err)
		}
		if err != nil {
			continue
		}
		if f.Path() != filepath.Join(dir, tc.real) {
			t.Errorf("%s: made %s", name, f.Path())
		}
		f.Close()
		if info, err := os.Lstat(filepath.Join(dir, tc.real)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
