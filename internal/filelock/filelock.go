// Package filelock has locks that hold between processes: advisory locks on
// files (flock(2)), which the kernel releases when their holder dies.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

// ErrLocked reports that another caller holds the lock.
var ErrLocked = errors.New("locked")

// Lock waits until no other caller, in this process or another, holds the lock
// file name below root, and holds it until unlock. The file is made for the lock
// and removed with it. ctx bounds the wait.
func Lock(ctx context.Context, root *os.Root, name string) (unlock func(), err error) {
	// A blocking flock would keep its thread until the other holder unlocks, also
	// where ctx ends before. Holders keep these locks for tens of milliseconds at least.
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if unlock, err = TryLock(root, name); !errors.Is(err, ErrLocked) {
			return unlock, err
		}
		if err := channel.Sleep(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for the lock %s: %w", name, err)
		}
	}
}

// Between these lie the pauses of a waiting caller.
const (
	firstPause   = time.Millisecond
	longestPause = 50 * time.Millisecond
)

// LockBriefly is [Lock] without a context, for a lock that its holders keep for
// moments only.
func LockBriefly(root *os.Root, name string) (unlock func(), err error) {
	f, err := lock(root, name, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return release(root, name, f), nil
}

// TryLock is [Lock] without waiting; it fails with [ErrLocked].
func TryLock(root *os.Root, name string) (unlock func(), err error) {
	f, err := lock(root, name, syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return release(root, name, f), nil
}

// release returns a function that releases a lock.
func release(root *os.Root, name string, f *os.File) func() {
	return func() {
		_ = root.Remove(name) // before the release: a waiting caller notices that it holds a removed file
		_ = f.Close()
	}
}

// inheritTime bounds how long the lock of a process that was killed outlives it. A child
// that it was about to start has its descriptors until it executes its program.
const inheritTime = 3 * time.Second

// Outlast calls try until it fails with another error than [ErrLocked], or with none, for
// 3 seconds at most: the last holder may have been killed a moment ago.
func Outlast(try func() error) error {
	until := time.Now().Add(inheritTime)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := try(); !errors.Is(err, ErrLocked) || time.Now().After(until) {
			return err
		}
		<-time.After(pause)
	}
}

func lock(root *os.Root, name string, how int) (f *os.File, err error) {
	for {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening the lock %s: %w", name, err)
		}
		if err := Flock(f, how); err != nil {
			_ = f.Close()
			if errors.Is(err, ErrLocked) {
				return nil, ErrLocked
			}
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		if same(root, name, f) {
			return f, nil
		}
		_ = f.Close() // the last holder removed it
	}
}

// same reports whether name below root is still the open file f.
func same(root *os.Root, name string, f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := root.Lstat(name)
	return err == nil && os.SameFile(held, there)
}

// Flock locks an open file or directory until all its descriptors are closed,
// how as in flock(2). With LOCK_NB it fails with [ErrLocked] while another caller
// holds it.
func Flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}
