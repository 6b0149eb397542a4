package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// expect compares what a step says of the changes since the last state, and returns the new one.
func expect(t *testing.T, tracker *changes.Tracker, last *changes.State, want string) *changes.State {
	t.Helper()
	now := step(t, tracker)
	if got := facts(changes.Compare(last, now, changes.Limits{})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	return now
}

// Watches whose events were lost are gone, although nothing says which: all are armed again.
func TestOverflow(t *testing.T) {
	t.Parallel()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip(err)
	}
	events := 0
	if _, err := fmt.Sscan(string(limit), &events); err != nil || events > 20_000 {
		t.Skipf("a queue of %s events is too long to fill", limit)
	}
	dir := fastPlace(t)
	dirs := events/2 + 500 // each has two events
	var build, change strings.Builder
	for i := range dirs {
		fmt.Fprintf(&build, "mkdir %d\n", i)
		fmt.Fprintf(&change, "write %d/a 1\n", i)
	}
	do(t, dir, build.String())
	tracker := track(t, changes.Config{Root: dir})
	last := step(t, tracker)
	for range 2 { // the second time shows whether they were armed
		do(t, dir, change.String())
		now := step(t, tracker)
		if got := changes.Compare(last, now, changes.Limits{}); got.Counts.Created != dirs || !got.Exact {
			t.Fatalf("got %+v, want %d created", got.Counts, dirs)
		}
		do(t, dir, strings.ReplaceAll(strings.ReplaceAll(change.String(), "write", "rm"), " 1\n", "\n"))
		last = step(t, tracker)
	}
	do(t, dir, "write 0/b 1")
	expect(t, tracker, last, "created 0/b")
}

func TestTraps(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, after, want string }{
		{"a dirty directory that is moved in the same step", "mkdir d/e\nwrite d/e/a 1", "write d/e/a 2\nmv d/e f\nmv f d/g", "modified d/g/a, renamed d/g from d/e"},
		{"a directory that left a deleted parent", "mkdir d/e\nwrite d/e/a 1\nwrite d/b 1", "mv d/e e\nrm d", "deleted d, deleted d/b, renamed e from d/e"},
		{"renamed, rewritten, the time put back", "write a 1\ntouch a 1", "mv a b\nwrite b 2\ntouch b 1", "modified b, renamed b from a"},
		{"link counts of other names", "mkdir d e\nmkdir e\nwrite d/a 1\nln d/a e/a\nln d/a e/b", "rm e/b\nwrite d/a 2", "deleted e/b, modified d/a, modified e/a"},
		{"link groups while their directories move", "mkdir d\nmkdir e\nwrite d/a 1\nln d/a e/a", "mv d f\nmv e g\nwrite f/a 2", "modified f/a, modified g/a, renamed f from d, renamed g from e"},
		{"a backup and a new file", "write a 1", "mv a a~\nwrite a 2", "created a~, modified a"},
		{"an extended attribute alone", "write a 1\nxattr a 1", "xattr a 2", "meta a"},
		{"paths before a directory moved", "mkdir d/e\nwrite d/e/a 1", "mv d x\nmv x/e/a x/e/b", "renamed x from d, renamed x/e/b from d/e/a"},
		{"created again with equal content", "write a 1\ntouch a 1", "rm a\nwrite a 1\ntouch a 1", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for place, dir := range places(t) {
				t.Run(place, func(t *testing.T) {
					t.Parallel()
					do(t, dir, test.before)
					tracker := track(t, changes.Config{Root: dir})
					last := step(t, tracker)
					do(t, dir, test.after)
					last = expect(t, tracker, last, test.want)
					expect(t, tracker, last, "")
					if got := facts(changes.Compare(last, verify(t, tracker), changes.Limits{})); got != "" {
						t.Errorf("a listing of everything finds %s", got)
					}
				})
			}
		})
	}
}

// An access control list is an extended attribute.
func TestACL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do(t, dir, "write a 1\nchmod a 755")
	tracker := track(t, changes.Config{Root: dir})
	last := step(t, tracker)
	// user::rwx, user:65534:rwx, group::r-x, mask::r-x, other::r-x (acl(5)); the mode stays 0755.
	acl := []byte{2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 254, 255, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255}
	if err := unix.Lsetxattr(filepath.Join(dir, "a"), "system.posix_acl_access", acl, 0); err != nil {
		t.Skip(err)
	}
	expect(t, tracker, last, "meta a")
}

// On tmpfs a store through a mapping that was read before leaves no time, and elsewhere one after the mapping's descriptor
// was closed leaves an event that comes before it.
func TestStoreAfterRead(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			do(t, dir, "write a "+strings.Repeat("0", 5000))
			tracker := track(t, changes.Config{Root: dir})
			last := step(t, tracker)
			f, err := os.OpenFile(filepath.Join(dir, "a"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			read := data[0]
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			data[0] = read + 1
			if err := unix.Munmap(data); err != nil {
				t.Fatal(err)
			}
			expect(t, tracker, last, "modified a")
		})
	}
}

// Whether times can be believed is tried out, since overlayfs does not say what it lies on.
func TestStoresHaveTimes(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		yes, known := changes.StoresHaveTimes(fd)
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
		if place == "tmpfs" && (yes || !known) {
			t.Errorf("%s: got %t, known %t", place, yes, known)
		}
		do(t, dir, "write a 0")
		if err := unix.Utimes(filepath.Join(dir, "a"), []unix.Timeval{{Sec: 1}, {Sec: 1}}); err != nil {
			t.Fatal(err)
		}
		data := mapFile(t, filepath.Join(dir, "a"))
		data[0]++
		info, err := os.Stat(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if known && yes != (info.ModTime().Unix() != 1) {
			t.Errorf("%s: got %t, and a file has the time %v", place, yes, info.ModTime())
		}
	}
}

// deep makes directories in each other, and returns a descriptor of the last.
func deep(t *testing.T, dir string, depth int) int {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.Mkdirat(at, "d", 0o755); err == nil {
			var next int
			next, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			_ = unix.Close(at)
			at = next
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(at) })
	return at
}

// A tree of any depth is listed whole: rounds are not bounded by depth, paths not by PATH_MAX.
func TestDeep(t *testing.T) {
	t.Parallel()
	dir := fastPlace(t)
	const depth = 10_000
	tracker := track(t, changes.Config{Root: dir})
	last := step(t, tracker)
	at := deep(t, dir, depth)
	now := step(t, tracker)
	if got := changes.Compare(last, now, changes.Limits{}); got.Counts.Created != depth || !got.Exact || !got.Truncated {
		t.Errorf("got %+v, exact %t (%s)", got.Counts, got.Exact, got.Why)
	}
	fd, err := unix.Openat(at, "a", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	got := changes.Compare(now, step(t, tracker), changes.Limits{Bytes: 1 << 20})
	if len(got.Facts) != 1 || got.Facts[0].Path != strings.Repeat("d/", depth)+"a" {
		t.Errorf("a file at the bottom: got %+v", got.Counts)
	}
}
