package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/files"
)

// No name leads to what procfs knows about this process; the files of other processes
// and of the system are read as before.
func TestProcfs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, parent := os.Getpid(), os.Getppid()
	link := func(target string) string {
		name := filepath.Join(dir, fmt.Sprint(len(target), filepath.Base(target)))
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	for _, name := range []string{
		"/proc/self/maps", "/proc/thread-self/maps", "/proc/self", "/proc/self/fd", "/proc/self/task",
		fmt.Sprintf("/proc/%d/smaps", pid), fmt.Sprintf("/proc/%d/task/%d/maps", pid, thread), fmt.Sprintf("/proc/%d/status", thread),
		"/proc/self/fd/0", "/dev/fd/0", "/dev/stdin", "/dev/fd",
		"/proc/self/root/proc/self/maps", "/proc/self/cwd", "/proc/self/exe", "/proc/../proc/./self/environ",
		fmt.Sprintf("/proc/%d/root", parent), fmt.Sprintf("/proc/%d/root/proc/%d/maps", parent, pid),
		link("/proc/self/maps"), link("/proc/self"), filepath.Join(link("/proc/self/"), "status"),
		"/proc/mounts", "/proc/net/dev",
	} {
		f, err := files.Open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = f.Close()
			t.Errorf("%s was opened", name)
		} else if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	for _, name := range []string{
		"/proc", "/proc/meminfo", "/proc/sys/kernel/ostype", "/proc/sys", fmt.Sprintf("/proc/%d/status", parent), fmt.Sprintf("/proc/%d", parent),
		"/dev/null", dir, link("/proc/cpuinfo"),
	} {
		f, err := files.Open(name, os.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := files.Check(f, os.O_RDONLY); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
	// Settings of the kernel are not written, whatever the thread may do.
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj", fmt.Sprintf("/proc/%d/comm", parent)} {
		if f, err := files.Open(name, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened for writing", name)
		}
	}
}

// Procfs that is mounted elsewhere, as a whole or in part, is not another way.
func TestProcfsElsewhere(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	mount := func(source, name, kind string, flags uintptr) string {
		at := filepath.Join(dir, name)
		info, err := os.Stat(source)
		if err == nil && !info.IsDir() {
			err = os.WriteFile(at, nil, 0o600)
		} else {
			err = os.Mkdir(at, 0o700)
		}
		if err == nil {
			err = syscall.Mount(source, at, kind, flags, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
		return at
	}
	whole := mount("/proc", "whole", "", syscall.MS_BIND)
	other := mount("proc", "other", "proc", 0)
	own := mount(fmt.Sprintf("/proc/%d", os.Getpid()), "own", "", syscall.MS_BIND)
	file := mount(fmt.Sprintf("/proc/%d/maps", os.Getpid()), "file", "", syscall.MS_BIND)
	for _, name := range []string{whole + "/self/maps", other + "/self/maps", other + fmt.Sprintf("/%d/fd", os.Getpid()), own + "/maps", own, file} {
		if f, err := files.Open(name, os.O_RDONLY, 0); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened", name)
		}
	}
	for _, name := range []string{whole + "/meminfo", other + "/meminfo", other + fmt.Sprintf("/%d/status", os.Getppid())} {
		f, err := files.Open(name, os.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		_ = f.Close()
	}
}
