package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
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

// Start files that do not end keep no file, no program and no question waiting, but the
// sandbox is not ready, and a command is told when its shell did not start in time.
func TestAnswersDuringStartFiles(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"waits": "", "closes its descriptors": "exec 3>&- 4>&- 5>&-; ", "ignores hang-ups": "trap '' HUP TERM; ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			gate := filepath.Join(home, "gate")
			text := file + "until [ -e '" + gate + "' ]; do sleep 0.01; done\n"
			testhelp.WriteFile(t, filepath.Join(home, ".bashrc"), text, 0o600)
			addr, _, stop := started(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home})
			c := to(t, "http://"+addr, "")
			wants := func(ask func(context.Context) error, status int) {
				t.Helper()
				err := ask(t.Context())
				if refused, ok := errors.AsType[*client.StatusError](err); !ok || refused.Status != status {
					t.Errorf("got %v, want status %d", err, status)
				}
			}
			wants(c.Ready, http.StatusServiceUnavailable)
			wants(c.Alive, http.StatusInternalServerError)
			for _, a := range []api.Action{
				api.ExecAction{Command: "echo here"}, api.WriteAction{Path: "f", Content: "here"}, api.ReadAction{Path: "f"},
			} {
				if o, err := c.Do(t.Context(), api.Request{Action: a}); err != nil {
					t.Errorf("%T: got %+v, %v", a, o, err)
				}
			}
			short := 0.05
			o, err := c.Do(t.Context(), api.Request{Timeout: &short, Action: api.RunAction{Command: "echo early >>early"}})
			if failed, ok := o.(api.RunObservation); err != nil || !ok || !strings.Contains(failed.Content, "did not start within 0.05 seconds, and the command did not run") {
				t.Errorf("a command with a short timeout: got %+v, %v", o, err)
			}
			testhelp.WriteFile(t, gate, "", 0o600)
			if o, err = c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "cat f early"}}); err != nil {
				t.Fatal(err)
			}
			if got, ok := o.(api.RunObservation); !ok || !strings.Contains(got.Content, "here") || strings.Contains(got.Content, "\nearly") {
				t.Errorf("got %+v", o)
			}
			testhelp.Eventually(t, func() bool { return c.Ready(t.Context()) == nil }, "the server is ready")
			if err := c.Alive(t.Context()); err != nil {
				t.Error(err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server whose first shell cannot be started ends, and says why.
func TestNoShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testhelp.WriteProgram(t, filepath.Join(dir, "bash"), "#!/bin/sh\nexit 7\n")
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir}
	err := run(t.Context(), []string{"--addr", "127.0.0.1:0", "--working-dir", t.TempDir()}, env, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "starting the default session: ") {
		t.Errorf("got %v", err)
	}
}

// TestWorkingDirIsFile: where the working directory can be none, commands begin in another one, which the status says.
func TestWorkingDirIsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	testhelp.WriteFile(t, file, "", 0o600)
	c, _, _ := serveForTest(t, "--working-dir", file)
	life, err := c.Status(t.Context())
	if err != nil || !strings.Contains(life.DirProblem, file+" (not a directory)") {
		t.Errorf("got %+v, %v", life, err)
	}
	o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "pwd"}})
	if run, ok := o.(api.RunObservation); err != nil || !ok || !strings.HasSuffix(life.DirProblem, "begin in "+run.Content) {
		t.Errorf("got %+v, %v; %s", o, err, life.DirProblem)
	}
}
