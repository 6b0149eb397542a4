package proc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// keeps reports whether an answer is kept once it was asked for. Anything on the machine that
// mounts a file system has the finder forget them all.
func keeps(f *proc.Finder, path, dir string) bool {
	for range 100 {
		if f.Kept(path, dir) {
			return true
		}
		f.Find(path, dir)
	}
	return false
}

// which is the oracle: it looks for python each time.
func which(path, dir string) string {
	for part := range strings.SplitSeq(path, ":") {
		if !strings.HasPrefix(part, "/") {
			part = dir + "/" + part
		}
		file := filepath.Clean(part + "/python")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// change makes a change to the tree below root: line is a command and its
// arguments, paths relative to root.
func change(t *testing.T, root, line string) {
	t.Helper()
	words := strings.Fields(line)
	at := func(i int) string { return filepath.Join(root, words[i]) }
	var err error
	switch words[0] {
	case "program":
		err = os.WriteFile(at(1), nil, 0o755)
	case "text":
		err = os.WriteFile(at(1), nil, 0o644)
	case "mkdir":
		err = os.MkdirAll(at(1), 0o755)
	case "rm":
		err = os.RemoveAll(at(1))
	case "mv":
		err = os.Rename(at(1), at(2))
	case "ln": // a link to a target as it is written; ROOT is the directory
		err = os.Symlink(strings.ReplaceAll(words[2], "ROOT", root), at(1))
	case "hardlink":
		err = os.Link(at(1), at(2))
	case "+x":
		err = os.Chmod(at(1), 0o755)
	case "-x":
		err = os.Chmod(at(1), 0o644)
	default:
		t.Fatalf("no change %q", line)
	}
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

// An answer is kept until something changes on which it depends, and is right again
// at once after that.
func TestFinder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		path   string // ROOT is the directory; relative parts begin at ROOT/dir
		before string
		after  string
	}{
		{"installed", "ROOT/a:ROOT/b", "mkdir a; mkdir b", "program b/python; program a/python"},
		{"removed", "ROOT/a:ROOT/b", "mkdir a; mkdir b; program a/python; program b/python", "rm a/python; rm b/python"},
		{"renamed", "ROOT/a", "mkdir a; program a/other", "mv a/other a/python; mv a/python a/gone"},
		{"made executable", "ROOT/a", "mkdir a; text a/python", "+x a/python; -x a/python"},
		{"by another name", "ROOT/a", "mkdir a; mkdir b; text a/python; hardlink a/python b/alias", "+x b/alias; -x b/alias"},
		{"a directory in its place", "ROOT/a", "mkdir a; program a/python", "rm a/python; mkdir a/python; rm a/python; program a/python"},
		{"the directory is made", "ROOT/a/b/c", "mkdir x", "mkdir a; mkdir a/b/c; program a/b/c/python; rm a"},
		{"the directory is moved", "ROOT/a/b", "mkdir a/b; mkdir x/b; program x/b/python", "mv a old; mv x a; mv a x; mv old a"},
		{"a file is in the way", "ROOT/a/b", "text a; mkdir x/b; program x/b/python", "rm a; mv x a"},
		{"linked", "ROOT/a", "mkdir a; mkdir b; program b/python3; ln a/python ROOT/b/python3", "-x b/python3; +x b/python3; rm b/python3; program b/python3; rm a/python"},
		{"linked through others", "ROOT/a", "mkdir a; mkdir b; mkdir c; ln a/python ../b/python; ln b/python ../c/python3; program c/python3", "rm b/python; ln b/python nowhere; program b/nowhere; rm c"},
		{"linked directories", "ROOT/bin", "mkdir usr/bin; ln bin usr/bin; mkdir v2; program v2/python", "program usr/bin/python; rm bin; ln bin v2; rm v2/python"},
		{"a link in the middle", "ROOT/env/bin", "mkdir v1/bin; mkdir v2/bin; program v2/bin/python; ln env v1", "rm env; ln env v2; mv v2 v3; mv v1 v2"},
		{"a link in a circle", "ROOT/a", "mkdir a; ln a/python python", "rm a/python; program a/python"},
		{"a link to nothing", "ROOT/a", "mkdir a; ln a/python ROOT/later/bin/python", "mkdir later; mkdir later/bin; program later/bin/python"},
		{"back and forth", "ROOT/a/../b", "mkdir a; mkdir b", "program b/python; rm a; rm b"},
		{"relative", "bin::ROOT/a", "mkdir dir/bin; mkdir a; program a/python", "program dir/python; program dir/bin/python; rm dir/bin"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir, path := filepath.Join(root, "dir"), strings.ReplaceAll(test.path, "ROOT", root)
			for line := range strings.SplitSeq(test.before, "; ") {
				change(t, root, line)
			}
			f := proc.NewFinder("python", nil)
			defer f.Close()
			f.Find(path, dir)
			for line := range strings.SplitSeq(test.after, "; ") {
				if !keeps(f, path, dir) {
					t.Errorf("before %q the answer is not kept", line)
				}
				change(t, root, line)
				if got, want := f.Find(path, dir), which(path, dir); got != want {
					t.Errorf("after %q: got %q, want %q", line, got, want)
				}
			}
		})
	}
}

// Whatever happens to a tree, the answer is that of a look at the files.
func TestFinderRandom(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	t.Cleanup(func() { // so that the directory can be removed
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	path := strings.ReplaceAll("ROOT/a:ROOT/b/c:ROOT/d/a:b:ROOT/c/d/b", "ROOT", root)
	names := []string{"a", "b", "c", "d", "python"}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	name := func() (at string) {
		for range 1 + random.IntN(3) {
			at = filepath.Join(at, names[random.IntN(len(names))])
		}
		return at
	}
	files, err := os.OpenRoot(root) // a link that is moved may lead out of the directory
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	f := proc.NewFinder("python", nil)
	defer f.Close()
	kept, found, log := 0, 0, []string{}
	for i := range 5_000 {
		if i%250 == 0 { // in some trees hardly any change is possible
			for _, entry := range names {
				if err := files.RemoveAll(entry); err != nil {
					t.Fatal(err)
				}
			}
			log = append(log, "rm -r *")
		}
		at, other := name(), name()
		var err error
		var what string
		switch random.IntN(8) {
		case 0, 1:
			what, err = "mkdir "+at, files.Mkdir(at, 0o755)
		case 2:
			what, err = "write "+at, files.WriteFile(at, nil, 0o755)
		case 3:
			mode := []os.FileMode{0o755, 0o644}[random.IntN(2)]
			if info, err := files.Stat(at); err == nil && info.IsDir() && os.Getuid() != 0 {
				mode = 0o755 // an ordinary user would lock itself out of everything in it
			}
			what, err = fmt.Sprint("chmod ", at, mode), files.Chmod(at, mode)
		case 4:
			what, err = "mv "+at+" "+other, files.Rename(at, other)
		case 5:
			what, err = "rm "+at, files.Remove(at)
		case 6:
			target, _ := filepath.Rel(filepath.Dir(at), other)
			what, err = "ln "+at+" "+target, files.Symlink(target, at)
		case 7:
			what, err = "hardlink "+at+" "+other, files.Link(at, other)
		}
		if err != nil {
			continue // most tries are of something that is not there
		}
		log = append(log, what)
		got, want := f.Find(path, root), which(path, root)
		if got != want {
			t.Fatalf("seed %d: got %q, want %q, after\n%s", seed, got, want, strings.Join(log[max(0, len(log)-20):], "\n"))
		}
		if got != "" {
			found++
		}
		if f.Kept(path, root) {
			kept++
		}
	}
	if kept < len(log)/2 || found == 0 {
		t.Errorf("of %d answers %d were kept and %d were paths", len(log), kept, found)
	}
}

// A file system that changes elsewhere is asked each time.
func TestFinderElsewhere(t *testing.T) {
	t.Parallel()
	f := proc.NewFinder("cmdline", nil)
	defer f.Close()
	for range 2 {
		if got := f.Find("/proc/self", "/"); got != "" || f.Kept("/proc/self", "/") {
			t.Errorf("got %q, and it may be kept", got)
		}
	}
}

// Other sessions ask with other PATHs, and there may be many.
func TestFinderManyPaths(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := proc.NewFinder("python", nil)
	defer f.Close()
	for i := range 200 {
		dir := filepath.Join(root, fmt.Sprint(i))
		testhelp.WriteFile(t, dir+"/python", "", 0o755)
		for _, path := range []string{root + ":" + dir, root} {
			if got, want := f.Find(path, "/"), which(path, "/"); got != want || !keeps(f, path, "/") {
				t.Errorf("%s: got %q, want %q, and it kept", path, got, want)
			}
		}
	}
	long := strings.Repeat(root+"/none:", 5000) + filepath.Join(root, "7")
	if got, want := f.Find(long, "/"), filepath.Join(root, "7", "python"); got != want || f.Kept(long, "/") {
		t.Errorf("a very long PATH: got %q, want %q, and it not kept", got, want)
	}
}

// More events than the kernel keeps are a change too.
func TestFinderLostEvents(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := proc.NewFinder("python", nil)
	defer f.Close()
	f.Find(root, "/")
	for range 5_000 { // four events each; the kernel keeps 16,384
		for _, name := range []string{"x", "y"} { // equal events in a row are one
			testhelp.WriteFile(t, filepath.Join(root, name), "", 0o600)
			if err := os.Remove(filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	change(t, root, "program python")
	if got, want := f.Find(root, "/"), filepath.Join(root, "python"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The answer is the user's, who may lack the right to look into a directory.
func TestFinderRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to look as another user")
	}
	user := &identity.User{Name: "agent", UID: 65004, GID: 65004}
	root := testhelp.PublicDir(t)
	change(t, root, "mkdir home/bin")
	change(t, root, "program home/bin/python")
	f := proc.NewFinder("python", user)
	defer f.Close()
	path, program := filepath.Join(root, "home/bin"), filepath.Join(root, "home/bin/python")
	for _, test := range []struct {
		mode os.FileMode
		want string
		kept bool
	}{
		{0o700, "", true},
		{0o755, program, true},
		{0o711, program, false}, // what the user may not read, it may not watch
		{0o700, "", true},
		{0o744, "", true},
		{0o705, program, true},
	} {
		if err := os.Chmod(filepath.Join(root, "home"), test.mode); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := f.Find(path, "/"); got != test.want || keeps(f, path, "/") != test.kept {
				t.Errorf("mode %v: got %q and kept %t, want %q and %t", test.mode, got, f.Kept(path, "/"), test.want, test.kept)
			}
		}
	}
}

// An agent without a free inotify instance is answered all the same.
func TestFinderWithoutWatch(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to use up the instances of a user without processes")
	}
	user := &identity.User{Name: "agent", UID: 65003, GID: 65003}
	root := testhelp.PublicDir(t)
	spare := proc.NewFinder("python", user)
	defer spare.Close()
	spare.Find(root, "/")
	if !keeps(spare, root, "/") {
		t.Error("the answer for another user is not kept")
	}
	err := user.DoEffective(func() error {
		for range 10_000 {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if errors.Is(err, unix.EMFILE) {
				return nil
			} else if err != nil {
				return err
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
		}
		return errors.New("there is no limit")
	})
	if err != nil {
		t.Fatal(err)
	}
	f := proc.NewFinder("python", user)
	defer f.Close()
	for _, line := range []string{"text python", "+x python", "rm python"} {
		change(t, root, line)
		if got, want := f.Find(root, "/"), which(root, "/"); got != want || f.Kept(root, "/") {
			t.Errorf("after %q: got %q, want %q, and it not kept", line, got, want)
		}
		if got, want := spare.Find(root, "/"), which(root, "/"); got != want {
			t.Errorf("watched, after %q: got %q, want %q", line, got, want)
		}
	}
}

func BenchmarkFinder(b *testing.B) {
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	var user *identity.User
	if os.Geteuid() == 0 {
		user = &identity.User{Name: "agent", UID: 65003, GID: 65003}
	}
	f := proc.NewFinder("no-such-program", user)
	defer f.Close()
	b.Run("kept", func(b *testing.B) {
		for b.Loop() {
			f.Find(path, "/")
		}
	})
	f.Close()
	b.Run("looked up", func(b *testing.B) {
		for b.Loop() {
			f.Find(path, "/")
		}
	})
}
