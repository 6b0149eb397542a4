package changes_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// Random programs: what a step says is what a comparison of all names, attributes and contents says.
//
// CHANGES_STEPS is the number of steps of a run, CHANGES_SEED its seed.
func TestPrograms(t *testing.T) {
	t.Parallel()
	steps, seed := 150, rand.Uint64()
	for name, set := range map[string]func(uint64){
		"CHANGES_STEPS": func(n uint64) { steps = int(n) },
		"CHANGES_SEED":  func(n uint64) { seed = n },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(name, err)
			}
			set(n)
		}
	}
	for _, maxWatches := range []int{0, -1, 3} {
		for place, dir := range places(t) {
			t.Run(fmt.Sprintf("%s/%d", place, maxWatches), func(t *testing.T) {
				t.Parallel()
				t.Logf("CHANGES_SEED=%d", seed)
				run(t, &program{dir: dir, random: rand.New(rand.NewPCG(seed, 1))}, maxWatches, steps)
			})
		}
	}
}

func run(t *testing.T, p *program, maxWatches, steps int) {
	t.Helper()
	for range 30 {
		p.act()
	}
	p.log = nil
	tracker := track(t, changes.Config{Root: p.dir, MaxWatches: maxWatches})
	type moment struct {
		state *changes.State
		tree  map[string]entry
	}
	history := []moment{{step(t, tracker), tree(t, p.dir)}}
	for n := range steps {
		p.log, p.linked = nil, false
		for range 1 + p.random.IntN(6) {
			p.act()
		}
		now := moment{step(t, tracker), tree(t, p.dir)}
		history = append(history, now)
		for _, from := range []moment{history[len(history)-2], history[p.random.IntN(len(history))]} {
			got := changes.Compare(from.state, now.state, changes.Limits{Facts: 1 << 30, Bytes: 1 << 30})
			if wrong := check(from.tree, now.tree, got); wrong != "" {
				t.Fatalf("step %d: %s\nprogram:\n%s\ngot %q", n, wrong, strings.Join(p.log, "\n"), facts(got))
			}
		}
		if len(history) > 20 {
			history = history[1:]
		}
	}
}

// program changes a tree at random.
type program struct {
	dir    string
	random *rand.Rand
	log    []string
	// linked is set after a link was made in this step. What was written through a link that is removed in the same step
	// leaves no trace but in a listing of everything.
	linked bool
	// restless programs run during steps. They make no links, and no mappings that a step does not know of.
	restless bool
}

// act carries out one operation. It may fail, as when the name is that of a directory.
func (p *program) act() {
	dirs, files, all := []string{"."}, []string{}, []string{}
	_ = filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(p.dir, path)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			dirs = append(dirs, rel)
		case d.Type().IsRegular():
			files = append(files, rel)
		}
		all = append(all, rel)
		return nil
	})
	pick := func(from []string) string {
		if len(from) == 0 {
			return "none"
		}
		return from[p.random.IntN(len(from))]
	}
	fresh := func() string {
		return filepath.Join(pick(dirs), []string{"a", "b", "c", "d", "e", "\xff"}[p.random.IntN(6)])
	}
	kind := p.random.IntN(28)
	if len(all) > 60 {
		kind = 11
	}
	removes := []int{7, 8, 10, 11, 19, 20, 21, 23, 25}
	if p.restless && (kind == 6 || kind == 15) {
		kind = 0
	}
	if p.linked && slices.Contains(removes, kind) {
		kind = 0
	}
	var err error
	at := func(name string) string { return filepath.Join(p.dir, name) }
	say := func(format string, args ...any) {
		if err == nil {
			p.log = append(p.log, fmt.Sprintf(format, args...))
		}
	}
	text := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = "01"[p.random.IntN(2)]
		}
		return b
	}
	inPlace := func(name string, keepTime bool) {
		before, failed := os.Stat(at(name))
		if err = failed; err != nil {
			return
		}
		var f *os.File
		if f, err = open(at(name), os.O_WRONLY); err != nil {
			return
		}
		_, err = f.Write(text(int(before.Size())))
		err = errors.Join(err, f.Close())
		if keepTime {
			err = errors.Join(err, os.Chtimes(at(name), before.ModTime(), before.ModTime()))
		}
	}
	replace := func(name, with string) {
		tmp := filepath.Join(filepath.Dir(at(name)), "tmp")
		if err = os.WriteFile(tmp, []byte(with), 0o644); err == nil {
			if err = os.Rename(tmp, at(name)); err != nil {
				_ = os.Remove(tmp)
			}
		}
	}
	file, any, dir, name := pick(files), pick(all), pick(dirs), fresh()
	switch kind {
	case 0, 1:
		var f *os.File // which may be a FIFO or a link
		if f, err = os.OpenFile(at(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644); err == nil {
			_, err = f.Write(text(p.random.IntN(4)))
			err = errors.Join(err, f.Close())
		}
		say("write %q", name)
	case 2:
		var f *os.File
		if f, err = open(at(file), os.O_WRONLY|os.O_APPEND); err == nil {
			_, err = f.Write(text(1))
			err = errors.Join(err, f.Close())
		}
		say("append %q", file)
	case 3:
		inPlace(file, false)
		say("in place %q", file)
	case 4:
		inPlace(file, true)
		say("in place with the time put back %q", file)
	case 5:
		err = os.Truncate(at(file), int64(p.random.IntN(3)))
		say("truncate %q", file)
	case 6:
		err = p.store(at(file), text(1)[0])
		say("store through a mapping %q", file)
	case 7, 8:
		err = os.Rename(at(any), at(name)) // over what is there
		say("rename %q %q", any, name)
	case 9:
		other := pick(all)
		err = unix.Renameat2(unix.AT_FDCWD, at(any), unix.AT_FDCWD, at(other), unix.RENAME_EXCHANGE)
		say("exchange %q %q", any, other)
	case 10:
		err = os.Remove(at(any))
		say("rm %q", any)
	case 11:
		if dir != "." {
			err = os.RemoveAll(at(dir))
			say("rm -r %q", dir)
		}
	case 12, 13:
		err = os.Mkdir(at(name), 0o755)
		say("mkdir %q", name)
	case 14:
		err = os.Symlink([]string{"a", "missing", ".."}[p.random.IntN(3)], at(name))
		say("symlink %q", name)
	case 15:
		if err = os.Link(at(file), at(name)); err == nil {
			p.linked = true
		}
		say("link %q %q", file, name)
	case 16:
		err = unix.Mkfifo(at(name), 0o644)
		say("fifo %q", name)
	case 17:
		if info, failed := os.Lstat(at(any)); failed == nil && info.Mode()&fs.ModeSymlink == 0 {
			err = os.Chmod(at(any), []fs.FileMode{0o755, 0o700}[p.random.IntN(2)])
			say("chmod %q", any)
		}
	case 18:
		when := unix.NsecToTimespec(int64(p.random.IntN(2)) * 1e9)
		err = unix.UtimesNanoAt(unix.AT_FDCWD, at(any), []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
		say("touch %q", any)
	case 19: // mv f f~; > f
		if err = os.Rename(at(file), at(name)); err == nil {
			var f *os.File
			if f, err = open(at(file), os.O_WRONLY|os.O_CREATE|os.O_TRUNC); err == nil {
				_, err = f.Write(text(2))
				err = errors.Join(err, f.Close())
			}
		}
		say("backup %q %q", file, name)
	case 20:
		replace(file, string(text(2)))
		say("replace %q", file)
	case 21: // by an equal one
		content, failed := read(at(file))
		info, failed2 := os.Stat(at(file))
		if err = errors.Join(failed, failed2); err == nil {
			if replace(file, string(content)); err == nil {
				err = errors.Join(os.Chmod(at(file), info.Mode()), os.Chtimes(at(file), info.ModTime(), info.ModTime()))
			}
		}
		say("replace by an equal file %q", file)
	case 22:
		target := []string{file, dir}[p.random.IntN(2)]
		err = unix.Lsetxattr(at(target), "user.x", text(1), 0)
		say("setxattr %q", target)
	case 23: // rename, rewrite, put the time back
		if err = os.Rename(at(file), at(name)); err == nil {
			inPlace(name, true)
		}
		say("rename and rewrite %q %q", file, name)
	case 24:
		err = unix.Lremovexattr(at(file), "user.x")
		say("removexattr %q", file)
	case 25: // another type
		if err = os.Remove(at(file)); err == nil {
			err = os.Mkdir(at(file), 0o755)
		}
		say("type %q", file)
	case 26:
		if err = os.WriteFile(at(name)+"0", nil, 0o644); err == nil {
			err = os.Remove(at(name) + "0")
		}
		say("made and removed %q", name)
	case 27:
		if os.Geteuid() == 0 {
			err = os.Lchown(at(any), p.random.IntN(2), 0)
			say("chown %q", any)
		}
	}
}

// open opens a file. Where a restore changes the directory at the same time, it may be a FIFO by now, which has no other end.
func open(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, flags|unix.O_NONBLOCK, 0o644)
}

func read(path string) ([]byte, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

// store changes the first byte of a file through a shared mapping, after it was read or not.
func (p *program) store(path string, b byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return errors.Join(err, errors.New("empty"))
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if p.random.IntN(2) == 0 && data[0] == b {
		b = 'x'
	}
	if p.random.IntN(2) == 0 {
		_ = f.Close() // before the last store
	}
	data[0] = b
	return unix.Munmap(data)
}

// entry is all that a comparison looks at.
type entry struct {
	kind           fs.FileMode
	ino            uint64
	btime          int64
	nlink          uint32
	content        string
	mode, uid, gid uint32
	mtime          time.Time
	xattr          string
}

// tree reads everything below a directory.
func tree(tb testing.TB, dir string) map[string]entry {
	tb.Helper()
	all := map[string]entry{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
			return err
		}
		e := entry{kind: info.Mode().Type(), ino: st.Ino, btime: st.Btime.Sec*1e9 + int64(st.Btime.Nsec), nlink: st.Nlink, mode: uint32(st.Mode), uid: st.Uid, gid: st.Gid}
		value := make([]byte, 64)
		if n, err := unix.Lgetxattr(path, "user.x", value); err == nil {
			e.xattr = string(value[:n])
		}
		switch e.kind {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			e.content, e.mtime = string(data), info.ModTime()
		case fs.ModeSymlink:
			if e.content, err = os.Readlink(path); err != nil {
				return err
			}
			e.mtime = info.ModTime()
		}
		all[rel] = e
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// check says what is wrong with the changes between two trees; "" if nothing is.
func check(before, after map[string]entry, got *changes.Changes) string {
	if !got.Exact || got.Truncated {
		return "not exact"
	}
	var wrong []string
	renames, said := map[string]string{}, map[changes.Op]map[string]bool{changes.Created: {}, changes.Deleted: {}, changes.Modified: {}, changes.Meta: {}, changes.Renamed: {}}
	for _, f := range got.Facts {
		if said[f.Op][f.Path] {
			wrong = append(wrong, fmt.Sprintf("twice: %v", f))
		}
		said[f.Op][f.Path] = true
		if f.Op != changes.Renamed {
			continue
		}
		b, a := before[f.From], after[f.Path]
		if b.ino == 0 || a.ino != b.ino || a.kind != b.kind || a.btime != b.btime {
			wrong = append(wrong, fmt.Sprintf("not a rename: %v", f))
		}
		if renames[f.From] != "" {
			wrong = append(wrong, fmt.Sprintf("renamed twice: %v", f))
		}
		renames[f.From] = f.Path
	}
	// moved is the path of a file after the renames, and with the path that it or a directory above it was renamed to.
	moved := func(path string) (to, with string) {
		for dir, rest := path, ""; ; dir = filepath.Dir(dir) {
			if with := renames[dir]; with != "" {
				return filepath.Join(with, rest), with
			}
			if dir == "." {
				return path, ""
			}
			rest = filepath.Join(filepath.Base(dir), rest)
		}
	}
	// Of two files that would have one path, the one that came with the deeper rename has it: the directory of the other is gone.
	owner, depth := map[string]string{}, map[string]int{}
	for path := range before {
		to, with := moved(path)
		if _, taken := owner[to]; !taken || len(with) > depth[to] {
			owner[to], depth[to] = path, len(with)
		}
	}
	// What was in the directory of the other is gone with it.
	gone := func(path string) bool {
		for dir := path; renames[dir] == "" && filepath.Dir(dir) != "."; dir = filepath.Dir(dir) {
			to, _ := moved(filepath.Dir(dir))
			if owner[to] != filepath.Dir(dir) {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(owner, func(_, path string) bool { return gone(path) })
	want := map[changes.Op]map[string]bool{changes.Created: {}, changes.Deleted: {}, changes.Modified: {}, changes.Meta: {}, changes.Renamed: said[changes.Renamed]}
	for path, b := range before {
		to, _ := moved(path)
		a, ok := after[to]
		if !ok || owner[to] != path {
			want[changes.Deleted][path] = true
			continue
		}
		switch {
		case a.kind != b.kind || a.content != b.content:
			want[changes.Modified][to] = true
		case a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.xattr != b.xattr || !a.mtime.Equal(b.mtime):
			want[changes.Meta][to] = true
		}
	}
	identities := map[entry]string{}
	for path, a := range after {
		if _, ok := owner[path]; !ok {
			want[changes.Created][path] = true
		}
		if _, existed := before[path]; !existed && (a.kind.IsDir() || a.nlink == 1) {
			identities[entry{ino: a.ino, btime: a.btime, kind: a.kind}] = path
		}
	}
	for path, b := range before {
		to := identities[entry{ino: b.ino, btime: b.btime, kind: b.kind}]
		_, exists := after[path]
		if said, _ := moved(path); !exists && to != "" && (b.kind.IsDir() || b.nlink == 1 && b.btime != 0) && said != to {
			wrong = append(wrong, fmt.Sprintf("%q was renamed to %q", path, to))
		}
	}
	for op, paths := range want {
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if !said[op][path] {
				wrong = append(wrong, fmt.Sprintf("missing: %s %q", op, path))
			}
		}
		for _, path := range slices.Sorted(maps.Keys(said[op])) {
			if !paths[path] {
				wrong = append(wrong, fmt.Sprintf("wrong: %s %q", op, path))
			}
		}
	}
	counts := changes.Counts{
		Created: len(want[changes.Created]), Modified: len(want[changes.Modified]), Deleted: len(want[changes.Deleted]),
		Renamed: len(renames), Meta: len(want[changes.Meta]),
	}
	if wrong == nil && got.Counts != counts {
		wrong = append(wrong, fmt.Sprintf("counts are %v, want %v", got.Counts, counts))
	}
	return strings.Join(wrong, "; ")
}
