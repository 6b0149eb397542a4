package filelock_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/testhelp"
)

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// The file is removed with each unlock, so that waiting callers meet files that
// are gone.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holders, most := 0, 0
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 8 {
		root := open(t, dir)
		group.Go(func() {
			for range 50 {
				unlock, err := filelock.Lock(t.Context(), root, "l")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				holders++
				most = max(most, holders)
				mu.Unlock()
				mu.Lock()
				holders--
				mu.Unlock()
				unlock()
			}
		})
	}
	group.Wait()
	if most != 1 {
		t.Errorf("%d callers held the lock at once", most)
	}
	if _, err := os.Lstat(filepath.Join(dir, "l")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a lock that is not held: %v", err)
	}
}

func TestTryLockAndContext(t *testing.T) {
	t.Parallel()
	root := open(t, t.TempDir())
	unlock, err := filelock.Lock(t.Context(), root, "l")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.TryLock(root, "l"); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("TryLock: got %v, want ErrLocked", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := filelock.Lock(ctx, root, "l"); !errors.Is(err, enough) {
		t.Errorf("Lock with a context that ended: got %v, want its cause", err)
	}
	unlock()
	if unlock, err = filelock.Lock(t.Context(), root, "l"); err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	unlock()
}

// A wait that is cancelled leaves nothing behind. It runs alone, because it counts
// goroutines.
func TestCancelledWaitEnds(t *testing.T) { //nolint:paralleltest // see above
	root := open(t, t.TempDir())
	unlock, err := filelock.TryLock(root, "l")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	before := runtime.NumGoroutine()
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := filelock.Lock(ctx, root, "l"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	// A timer's own goroutine may end a moment later.
	testhelp.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "the goroutines of 10 waits end")
}

// The lock of a process that is killed is free.
func TestHolderDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "l"))
	if err != nil {
		t.Fatal(err)
	}
	if err := filelock.Flock(f, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	holder := exec.CommandContext(t.Context(), "sleep", "1000")
	holder.ExtraFiles = []*os.File{f}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close() // the child alone holds it now
	root := open(t, dir)
	if _, err := filelock.TryLock(root, "l"); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("while the holder lives: got %v, want ErrLocked", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	unlock, err := filelock.Lock(t.Context(), root, "l")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	_ = holder.Wait()
}

// A process that was killed while it started another leaves its lock to that one, until
// it executes its program.
func TestOutlast(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "l")
	hold := func(seconds string) {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := filelock.Flock(f, syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", seconds)
		cmd.ExtraFiles = []*os.File{f}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
		t.Cleanup(func() { _ = cmd.Process.Kill() })
	}
	try := func() error {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return filelock.Flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	hold("0.2")
	if err := try(); !errors.Is(err, filelock.ErrLocked) {
		t.Fatalf("it is not locked: %v", err)
	}
	if err := filelock.Outlast(try); err != nil {
		t.Error(err)
	}
	hold("1000")
	if err := filelock.Outlast(try); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("got %v", err)
	}
}
