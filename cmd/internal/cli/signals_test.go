package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/testhelp"
)

// The signals of a second are one: timeout(1) signals its child, and then the group that
// the child is in.
func TestSignalsOfOneMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, again := make(chan os.Signal, 1), make(chan struct{})
		ctx := interruptible(signals, func() { close(again) })
		if err := ctx.Err(); err != nil {
			t.Fatalf("without a signal: %v", err)
		}
		signals <- syscall.SIGTERM
		<-ctx.Done()
		first := time.Now()
		<-again
		if waited := time.Since(first); waited != sameSignal {
			t.Errorf("another signal ends it %v after the first, want %v", waited, sameSignal)
		}
	})
}

// A command that is interrupted twice within a moment cleans up all the same.
func TestRunInterruptedTwice(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	mark := filepath.Join(t.TempDir(), "begun")
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "runtimectl"), "run", "--on", "local", "--state-dir", m.dir, "--", "sh", "-c", "echo >"+mark+"; exec sleep 1000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, func() bool {
		if cmd.Process.Signal(syscall.Signal(0)) != nil {
			t.Fatalf("it ended: %s", stderr.String())
		}
		_, err := os.Stat(mark)
		return err == nil
	}, "the program runs")
	for range 2 {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = cmd.Wait()
	if !cmd.ProcessState.Exited() {
		t.Errorf("got %v: %s", cmd.ProcessState, stderr.String())
	}
	if left := m.ok("ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// Whatever is interrupted while it waits for the platform says that alone.
func TestInterruptedSays(t *testing.T) {
	t.Parallel()
	cancelled := fmt.Errorf("looking for volume x: %w", context.Canceled)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{cancelled, "interrupted"},
		{errors.Join(cancelled, nil), "interrupted"},
		{errors.Join(cancelled, errors.New("removing it: busy")), "interrupted: looking for volume x: context canceled\nremoving it: busy"},
	} {
		ended, ok := errors.AsType[*command.ExitError](interrupted(tt.err))
		if !ok || ended.Code != command.ExitInterrupted || ended.Why != tt.want {
			t.Errorf("got %+v, want %q", ended, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"create"}, {"run", "--", "true"}} {
		line := append([]string{args[0], "--on", "local", "--state-dir", t.TempDir(), "--server", filepath.Join(programs(t), "server")}, args[1:]...)
		code, stdout, _ := inProcess(ctx, nil, line...)
		if code != command.ExitInterrupted || stdout != "" {
			t.Errorf("%s: exit code %d, %q", args[0], code, stdout)
		}
	}
}
