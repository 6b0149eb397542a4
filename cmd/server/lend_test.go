package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
)

// lend makes a copy, takes away what other users may do, and goes on; lent waits for it.
func TestLend(t *testing.T) {
	t.Parallel()
	dir, private := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, private} { // as Kubernetes makes empty directories
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(dir, "server")
	testhelp.WriteFile(t, target+".part", "of one that was killed", 0o600)
	ctx, end := context.WithCancel(t.Context())
	lending := make(chan error, 1)
	go func() { lending <- lend(ctx, []string{target, private}) }()
	if err := awaitLent(t.Context(), []string{target}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o755, private: 0o700, target: 0o755} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	self := testhelp.ReadFile(t, "/proc/self/exe")
	if copied, err := os.ReadFile(target); err != nil || string(copied) != string(self) {
		t.Errorf("the copy has %d bytes of %d: %v", len(copied), len(self), err)
	}
	select {
	case err := <-lending:
		t.Errorf("it ended by itself: %v", err)
	default:
	}
	end()
	if err := <-lending; err != nil {
		t.Error(err)
	}
	// A container that is started again leaves the copy.
	testhelp.WriteFile(t, target, "kept", 0o600)
	if err := lend(ctx, []string{target, private}); err != nil {
		t.Error(err)
	}
	if kept, err := os.ReadFile(target); err != nil || string(kept) != "kept" {
		t.Errorf("%.10q, %v", kept, err)
	}
	if err := lend(ctx, []string{filepath.Join(dir, "no", "such")}); err == nil {
		t.Error("no error without a directory")
	}
	for _, wrong := range [][]string{nil, {"--help"}, {target + "2", "relative"}} {
		for _, err := range []error{lend(ctx, wrong), awaitLent(ctx, wrong)} {
			if err == nil || !strings.Contains(err.Error(), "needs the absolute name of") {
				t.Errorf("%q: %v", wrong, err)
			}
		}
	}
}

// lent ends with its context, and not before the file is there.
func TestLentWaits(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "server")
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if err := awaitLent(ctx, []string{target}); err == nil || !strings.Contains(err.Error(), "deadline") {
			t.Error(err)
		}
	})
}
