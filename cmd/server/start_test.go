package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStartFIFO starts nothing, and makes no directory, before the controller
// allows it.
func TestStartFIFO(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(fifo *os.File, cancel context.CancelFunc)
		want string // part of the error, empty where it starts
	}{
		{"allowed", func(fifo *os.File, _ context.CancelFunc) { _, _ = fifo.Write([]byte("\n")) }, ""},
		{"closed", func(fifo *os.File, _ context.CancelFunc) { _ = fifo.Close() }, "which the controller did not give"},
		{"cancelled", func(_ *os.File, cancel context.CancelFunc) { cancel() }, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), "start")
			if err := unix.Mkfifo(name, 0o600); err != nil {
				t.Fatal(err)
			}
			fifo, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer fifo.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- awaitStart(ctx, name) }()
			select {
			case err := <-result:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			c.do(fifo, cancel)
			err = <-result
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	work := filepath.Join(t.TempDir(), "work")
	name := filepath.Join(t.TempDir(), "none")
	err := run(t.Context(), []string{"--addr", "127.0.0.1:0", "--working-dir", work, "--start-fifo", name}, nil, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "waiting for permission to start") {
		t.Errorf("without the FIFO: got %v", err)
	}
	if _, err := os.Stat(work); !os.IsNotExist(err) {
		t.Errorf("the working directory is there: %v", err)
	}
}
