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

	"github.com/actiond/actiond/internal/testhelp"
)

// The libraries of the server are set up in the server alone, and not in PID 1.
func TestInitSetUp(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), buildServer(t), "init", "version")
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	var traces strings.Builder // of both processes
	cmd.Stderr = &traces
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"os": 2, "net/http": 1, "github.com/prometheus/client_golang/prometheus": 1, "github.com/modelcontextprotocol/go-sdk/mcp": 1} {
		if got := strings.Count(traces.String(), "init "+name+" @"); got != want {
			t.Errorf("%s was set up %d times, want %d", name, got, want)
		}
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
			testhelp.Eventually(t, func() bool { orphan, _ = os.ReadFile(filepath.Join(dir, "id")); return len(orphan) > 0 }, "the orphan writes its id")
			testhelp.Eventually(t, func() bool { // as long as it is not reaped, it is there
				_, err := os.Stat("/proc/" + strings.TrimSpace(string(orphan)))
				return errors.Is(err, os.ErrNotExist)
			}, "the orphan is reaped")
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

// With --until-eof all that the sandbox started ends with the program that has the other end of standard input.
func TestInitUntilEOF(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), buildServer(t), "init", "--until-eof", "--addr", "unix:"+filepath.Join(dir, "s"), "--working-dir", dir,
		"--state-dir", filepath.Join(dir, "state"))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	call := dialUnix(t, filepath.Join(dir, "s"))
	var started []string
	for i, command := range []string{"env -i setsid sh -c 'echo $$ >id0; exec sleep 1000' &", "(setsid sh -c 'echo $$ >id1; sleep 1000 & sleep 1000' &)", "nohup sleep 1000 & echo $! >id2; disown"} {
		call(command)
		var id []byte
		testhelp.Eventually(t, func() bool { id, _ = os.ReadFile(filepath.Join(dir, fmt.Sprint("id", i))); return len(id) > 0 }, "it writes its id")
		started = append(started, strings.TrimSpace(string(id)))
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, id := range started {
		if _, err := os.Stat("/proc/" + id); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s is left: %v", id, err)
		}
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

// dialUnix waits for a server at a socket. call runs a command there.
func dialUnix(t *testing.T, socket string) (call func(command string)) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	testhelp.Eventually(t, func() bool { // the file is there before the server listens
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "the server listens")
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
