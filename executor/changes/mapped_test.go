package changes_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/changes"
)

// mapFile maps a file for writing until the test ends, and closes it.
func mapFile(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	return data
}

// A store to a page that is dirty already leaves no trace. A living process's mappings are known.
func TestMapped(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			do(t, dir, "mkdir d\nwrite d/a "+strings.Repeat("0", 5000)+"\nwrite d/gone "+strings.Repeat("0", 5000)+"\nwrite other 1")
			tracker := track(t, changes.Config{Root: dir})
			last := step(t, tracker)
			a, gone := mapFile(t, filepath.Join(dir, "d/a")), mapFile(t, filepath.Join(dir, "d/gone"))
			do(t, dir, "ln d/gone kept\nrm d/gone")
			next := func(want string, pids ...int) {
				t.Helper()
				now, err := tracker.Step(pids...)
				if err != nil {
					t.Fatal(err)
				}
				if got := facts(changes.Compare(last, now, changes.Limits{})); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				last = now
			}
			me := os.Getpid()
			next("renamed kept from d/gone", me)
			for range 3 {
				a[0]++
				next("modified d/a", me)
				gone[1]++
				next("modified kept", me)
				next("", me)
			}
			a[0]++
			next("modified d/a") // the last step's are looked at once more
			next("")
		})
	}
}

// Beyond many mappings a step looks at no more, and says so.
func TestTooManyMappings(t *testing.T) {
	t.Parallel()
	tracker := track(t, changes.Config{Root: t.TempDir()})
	for n, want := range map[int]string{1999: "", 2001: "inexact: mapped"} {
		state, err := tracker.Step(slices.Repeat([]int{1<<22 + 1}, n)...) // each counts, also one that has ended
		if err != nil {
			t.Fatal(err)
		}
		if got := facts(changes.Compare(state, state, changes.Limits{})); got != want {
			t.Errorf("%d processes: got %q, want %q", n, got, want)
		}
	}
}

// A process that cannot be looked into may change any file; one that has ended cannot.
func TestMappingsUnknown(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give up a capability")
	}
	tracker := track(t, changes.Config{Root: t.TempDir()})
	runtime.LockOSThread() // which ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		t.Skip("needs CAP_SYS_PTRACE, to give it up")
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile("/proc/1/maps"); err == nil {
		t.Skipf("the init process can be looked into: %d bytes", len(data))
	}
	const ended = 1<<22 + 1
	for _, test := range []struct {
		pid  int
		want string
	}{{1, "inexact: mapped"}, {ended, ""}} {
		state, err := tracker.Step(test.pid)
		if err != nil {
			t.Fatal(err)
		}
		if got := facts(changes.Compare(state, state, changes.Limits{})); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
