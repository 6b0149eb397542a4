package hostpath_test

import (
	"errors"
	"io"
	"os"
	"strconv"
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
