package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// install makes a copy and takes away what other users may do.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir, private := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, private} { // as Kubernetes makes empty directories
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(dir, "server")
	if err := install([]string{target, private}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o755, private: 0o700, target: 0o755} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if copied, err := os.ReadFile(target); err != nil || string(copied) != string(self) {
		t.Errorf("the copy has %d bytes of %d: %v", len(copied), len(self), err)
	}
	// A file that an agent put there is not written through.
	if err := install([]string{target}); err == nil {
		t.Error("an existing file was replaced")
	}
	if err := install(nil); err == nil || !strings.Contains(err.Error(), "install needs the name") {
		t.Errorf("without a file: %v", err)
	}
}

// PID 1 ends with the status of the server, passes signals on, and reaps orphans.
func TestInit(t *testing.T) {
	t.Parallel()
	binary := buildServer(t)
	for args, want := range map[string]int{"version": 0, "--no-such-flag": 2, "--session-key-file=/no/such": 1} {
		err := exec.CommandContext(t.Context(), binary, "init", args).Run()
		status := 0
		if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			status = ended.ExitCode()
		}
		if status != want {
			t.Errorf("init %s ended with %d (%v), want %d", args, status, err, want)
		}
	}
	for signal, want := range map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGKILL: 137} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), binary, "init", "--addr", "unix:"+filepath.Join(dir, "s"), "--working-dir", dir, "--state-dir", filepath.Join(dir, "state"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			call := dialUnix(t, filepath.Join(dir, "s"))
			server := slices.Min(children(t, cmd.Process.Pid)) // the first; others are orphans
			// The subshell ends at once, and what it started becomes an orphan.
			call(`(sh -c 'echo $$ >id.new && mv id.new id && sleep 0.2' &)`)
			var orphan []byte
			waitUntil(t, func() bool { orphan, _ = os.ReadFile(filepath.Join(dir, "id")); return len(orphan) > 0 })
			waitUntil(t, func() bool { // as long as it is not reaped, it is there
				_, err := os.Stat("/proc/" + strings.TrimSpace(string(orphan)))
				return errors.Is(err, os.ErrNotExist)
			})
			target := cmd.Process.Pid
			if signal == syscall.SIGKILL {
				target = server
			}
			if err := syscall.Kill(target, signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status says it
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("ended with %d, want %d", got, want)
			}
		})
	}
}

// children are the process ids of a process's children, zombies too.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// waitUntil waits as long as the test may take.
func waitUntil(t *testing.T, over func() bool) {
	t.Helper()
	for !over() {
		select {
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// dialUnix waits for a server at a socket. call runs a command there.
func dialUnix(t *testing.T, socket string) (call func(command string)) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	waitUntil(t, func() bool { // the file is there before the server listens
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return func(command string) {
		body := fmt.Sprintf(`{"action": {"action": "run", "args": {"command": %q, "blocking": true}}}`, command)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/execute_action", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", command, answer.Status)
		}
	}
}
