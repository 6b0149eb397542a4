package hostpath_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/hostpath"
)

// anyLink follows every link.
func anyLink(hostpath.Link) error { return nil }

// tree makes directories (names that end in a slash), files that hold their
// names, and links (NAME -> TARGET) in a new directory.
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, target, isLink := strings.Cut(e, " -> ")
		switch {
		case isLink:
			err = os.Symlink(target, filepath.Join(dir, name))
		case strings.HasSuffix(name, "/"):
			err = os.Mkdir(filepath.Join(dir, name), 0o755)
		default:
			err = os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOpen compares with what the kernel opens.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := tree(t, "d/", "d/e/", "d/e/f", "f", "file -> f", "dir -> d", "up -> ../"+"x", "d/back -> ../f", "d/e/top -> ../../dir/e/f",
		"nowhere -> missing", "loop -> loop", "a -> b", "b -> a", "root -> /", "dot -> .", "slash -> d/e/")
	if err := os.Symlink(dir+"/d", filepath.Join(dir, "absolute")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", "/", "/f", "/d", "/d/", "/d//e/./f", "/d/../f", "/d/e/../../f", "/dir/e/f", "/dir/../f", "/file", "/d/back", "/d/e/top", "/absolute/e/f",
		"/nowhere", "/loop", "/a", "/missing", "/f/x", "/dot/dot/f", "/slash/f", "/slash/../back", "/root/dev/null", "/../../../../../../../../dev/null",
		"/" + strings.Repeat("dot/", 39) + "f", "/" + strings.Repeat("dot/", 40) + "file",
	} {
		want, wantErr := os.Stat(dir + name)
		got, err := hostpath.Open(dir+name, anyLink)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%q: got %v, the kernel says %v", name, err, wantErr)
			continue
		}
		if err != nil {
			if a, b := errnoOf(err), errnoOf(wantErr); a != b {
				t.Errorf("%q: got %v, the kernel says %v", name, a, b)
			}
			continue
		}
		info, err := got.Stat()
		if err != nil || !os.SameFile(info, want) {
			t.Errorf("%q: opened another file, %v", name, err)
		}
		if real, err := filepath.EvalSymlinks(dir + name); err != nil || got.Path() != real {
			t.Errorf("%q: got path %q, want %q, %v", name, got.Path(), real, err)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := hostpath.Open("relative", anyLink); err == nil {
		t.Error("a relative path was opened")
	}
}

func errnoOf(err error) syscall.Errno {
	no, _ := errors.AsType[syscall.Errno](err)
	return no
}

func TestLinksAreShown(t *testing.T) {
	t.Parallel()
	dir := tree(t, "d/", "d/e/", "d/e/f", "x -> d/y", "d/y -> e", "z -> x/f")
	var shown []string
	f, err := hostpath.Open(dir+"/z", func(l hostpath.Link) error {
		if l.UID != os.Geteuid() {
			t.Errorf("%s belongs to %d", l.Path, l.UID)
		}
		shown = append(shown, strings.TrimPrefix(l.Path, dir)+" "+l.Target)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := strings.Join(shown, ", "), "/z x/f, /x d/y, /d/y e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	refusal := errors.New("not this one")
	if _, err := hostpath.Open(dir+"/z", func(l hostpath.Link) error {
		if strings.HasSuffix(l.Path, "/d/y") {
			return refusal
		}
		return nil
	}); !errors.Is(err, refusal) {
		t.Errorf("got %v, want what follow returned", err)
	}
	if _, err := hostpath.Open(dir+"/z", hostpath.NoLinks); !errors.Is(err, hostpath.ErrLink) {
		t.Errorf("got %v, want ErrLink", err)
	}
	if f, err := hostpath.Open(dir+"/d/e/f", hostpath.NoLinks); err != nil {
		t.Errorf("without a link: %v", err)
	} else {
		f.Close()
	}
}

func TestOwnLinks(t *testing.T) {
	t.Parallel()
	for uid, want := range map[int]error{0: nil, os.Geteuid(): nil, 54321: hostpath.ErrLink} {
		if err := hostpath.OwnLinks(hostpath.Link{Path: "/x", UID: uid}); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%d: got %v, want %v", uid, err, want)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can make links of other users
	}
	dir := tree(t, "f", "l -> f")
	if err := os.Lchown(dir+"/l", 54321, 54321); err != nil {
		t.Fatal(err)
	}
	if _, err := hostpath.Open(dir+"/l", hostpath.OwnLinks); !errors.Is(err, hostpath.ErrLink) || !strings.Contains(err.Error(), "54321") {
		t.Errorf("got %v, want ErrLink with the owner", err)
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	dir := tree(t, "share/", "share/d/", "share/d/l -> ../../other/", "other/", "other/f", "l -> share/d/l/f")
	stat := func(name string) fs.FileInfo {
		info, err := os.Stat(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	below := map[string]string{}
	f, err := hostpath.Open(dir+"/l", func(l hostpath.Link) error {
		for _, d := range []string{"/share", "/share/d", "/other", ""} {
			if l.Below(stat(d)) {
				below[strings.TrimPrefix(l.Path, dir)] += d + " "
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if below["/l"] != " " || below["/share/d/l"] != "/share /share/d  " {
		t.Errorf("links: got %q", below)
	}
	if !f.Below(stat("/other")) || f.Below(stat("/share")) || f.Below(stat("/other/f")) {
		t.Error("the file does not lie where it does")
	}
}

// TestReader reads what was opened, whatever is at the path now.
func TestReader(t *testing.T) {
	t.Parallel()
	dir := tree(t, "d/", "d/f", "other")
	f, err := hostpath.Open(dir+"/d/f", hostpath.NoLinks)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := hostpath.Open(dir+"/d", hostpath.NoLinks)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(os.Rename(dir+"/d", dir+"/moved"), os.Symlink(".", dir+"/d"), os.Symlink("other", dir+"/f")); err != nil {
		t.Fatal(err)
	}
	file, err := f.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if data, err := io.ReadAll(file); err != nil || string(data) != "d/f" {
		t.Errorf("got %q, %v", data, err)
	}
	root, err := d.OpenRoot()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if data, err := root.ReadFile("f"); err != nil || string(data) != "d/f" {
		t.Errorf("in the directory: got %q, %v", data, err)
	}
	if _, err := f.OpenRoot(); err == nil || !strings.Contains(err.Error(), "/d/f") {
		t.Errorf("a file as a directory: got %v", err)
	}
}

// TestReaderOfFIFO waits for no agent.
func TestReaderOfFIFO(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := tree(t)
	if err := errors.Join(syscall.Mkfifo(dir+"/fifo", 0o666), os.Chown(dir+"/fifo", 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	f, err := hostpath.Open(dir+"/fifo", hostpath.NoLinks)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Reader(); err == nil || !strings.Contains(err.Error(), "another user's") {
		t.Errorf("got %v", err)
	}
}
