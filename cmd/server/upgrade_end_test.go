package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/internal/testhelp"
)

// background posts an action that is not waited for, and returns once it runs.
func (s *upgradable) background(id, kind string, args map[string]any) {
	s.Helper()
	s.act(kind, args, "Idempotency-Key", id, "Prefer", "respond-async, wait=0")
	testhelp.Eventually(s.T, func() bool { return s.stateOf(id) == "running" }, "%s runs", id)
}

// stateOf is the state of an action, and what its record says.
func (s *upgradable) stateOf(id string) string {
	s.Helper()
	_, record := s.do("GET", "/v1/actions/"+id, nil)
	_, rest, _ := strings.Cut(record, `"state":"`)
	state, _, _ := strings.Cut(rest, `"`)
	return state
}

// replaced returns once the version serves.
func (s *upgradable) replaced(version string) {
	s.Helper()
	testhelp.Eventually(s.T, func() bool { return s.version() == version }, "the version is %s", version)
}

// An upgrade waits for what runs, and names it in its refusal; without anything it ends the sessions, and keeps
// the process, the files, what is recorded, and the counters of upgrades.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	one, two := build(t, "one", "-X main.release=v1", "."), build(t, "two", "-X main.release=v2", ".")
	s := startUpgradable(t, one, []string{"SESSION_API_KEY=k"}, user...)
	first := s.run("X=42; cd /tmp; echo $$ >> "+s.work+"/pids; sleep 1000 & echo $! >> "+s.work+"/pids; echo done", "Idempotency-Key", "first")
	s.background("program", "exec", map[string]any{"command": "sleep 1000"})
	s.act("run", map[string]any{"command": "true", "session": "answered"}) // its shell may take longer to start than the next command has
	s.act("run", map[string]any{"command": "sleep 1000", "timeout": 0.2, "session": "answered"})
	s.background("typed", "exec", map[string]any{"command": "while [ ! -e go ]; do sleep 0.01; done; echo typed"})
	end := s.put("whole")
	status, _, answer := s.upgrade(two, "wait=0")
	for _, name := range []string{`the action \"program\"`, `the action \"typed\"`, `the command in session \"answered\"`, `the program \"`, "the request PUT /v1/files"} {
		if status != http.StatusConflict || !strings.Contains(answer, name) {
			t.Errorf("while things run: got %d %s, want %s", status, answer, name)
		}
	}
	s.want("version", s.version(), "v1")
	s.want("the shell", s.run("echo $X $PWD"), "42 /tmp")
	if err := end(); err != nil {
		t.Error(err)
	}
	s.act("run", map[string]any{"command": "C-c", "is_input": true, "session": "answered", "timeout": 60})
	s.do("DELETE", "/v1/actions/program?wait=30", nil)

	// An action that ends within the wait ends as ever. A follower reads all of it.
	c, err := client.New(client.Config{BaseURL: "unix://" + filepath.Join(s.dir, "s"), Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var followed bytes.Buffer
	var following sync.WaitGroup
	following.Go(func() {
		_, err := c.Follow(t.Context(), "typed", func(o api.Output) error { followed.Write(o.Data); return nil })
		if err != nil || !strings.Contains(followed.String(), "typed") {
			t.Errorf("followed %q, %v", followed.String(), err)
		}
	})
	following.Go(func() {
		testhelp.Eventually(t, func() bool { // the upgrade waits
			status, _ := s.do("POST", "/v1/renew", strings.NewReader(`{"ttl_seconds":7200}`))
			return status == http.StatusTooManyRequests
		}, "the upgrade waits")
		if status, _, answer := s.upgrade(one, ""); status != http.StatusConflict || !strings.Contains(answer, "Another upgrade") {
			t.Errorf("a second upgrade: %d %s", status, answer)
		}
		write(t, filepath.Join(s.work, "go"), nil)
	})
	status, u, answer := s.upgrade(two, "wait=600")
	following.Wait()
	if status != 200 || u.Version != "v2" || u.Previous != "v1" || !strings.Contains(fmt.Sprint(u.Ended), `the shell of session "default"`) || len(u.Unknown) > 0 {
		t.Fatalf("got %d %s", status, answer)
	}
	if err := contract.NewSpec(t).CheckResponse("POST", "/v1/upgrade", status, "application/json", []byte(answer)); err != nil {
		t.Error(err)
	}
	s.replaced("v2")
	s.want("the next shell", s.run("echo $X$PWD"), s.work)
	for pid := range strings.FieldsSeq(s.run("cat pids")) {
		if n, err := strconv.Atoi(pid); err != nil || runs(n) {
			t.Errorf("process %q lives", pid)
		}
	}
	s.want("a repeated action", s.run("X=42; cd /tmp; echo $$ >> "+s.work+"/pids; sleep 1000 & echo $! >> "+s.work+"/pids; echo done", "Idempotency-Key", "first"), first)
	s.want("state", s.stateOf("typed"), "done")
	s.want("lines", s.run("wc -l <pids"), "2")
	if _, metrics := s.do("GET", "/metrics", nil); !strings.Contains(metrics, `actiond_upgrades_total{result="done"} 1`+"\n") || !strings.Contains(metrics, `actiond_upgrades_total{result="refused"} 2`+"\n") {
		t.Error("the upgrades are not counted")
	}
	if left := entries(t, s.state); strings.Contains(fmt.Sprint(left), "server") {
		t.Errorf("the state directory has %q", left)
	}
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)); err != nil || !strings.Contains(string(got), "upgrade\x00resume") {
		t.Errorf("the process: %q, %v", got, err)
	}
}

// Force ends all that the marks find. The same id says what happened, and nothing runs twice. An agent's
// program that survives, because it took its mark off, does not get the port, neither meanwhile nor later.
func TestUpgradeByForce(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	probe := testhelp.Listen(t)
	addr := probe.Addr().String()
	_ = probe.Close()
	s := newUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, append(user, "--addr", addr)...)
	s.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}}
	s.start()
	survivor := s.run("(env -i PATH=$PATH setsid sleep 1000 >/dev/null 2>&1 & echo $!)")
	pid, err := strconv.Atoi(survivor)
	if err != nil {
		t.Fatalf("the survivor: %q", survivor)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	marked := s.run("setsid nohup sleep 1000 >/dev/null 2>&1 & echo $!")
	marked = marked[strings.LastIndexByte(marked, '\n')+1:]
	stubborn := "trap '' INT TERM HUP; echo once >> " + s.work + "/once; while :; do sleep 1; done"
	s.background("run", "run", map[string]any{"command": stubborn, "blocking": true})
	s.background("exec", "exec", map[string]any{"command": stubborn})
	s.background("clean", "exec", map[string]any{"command": "trap 'sleep 0.5; exit 7' INT; touch " + s.work + "/clean; while :; do sleep 0.01; done"})
	testhelp.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(s.work, "clean")); return err == nil }, "it obeys SIGINT")
	s.act("run", map[string]any{"command": "echo never >> " + s.work + "/once"}, "Idempotency-Key", "queued", "Prefer", "respond-async, wait=0")
	testhelp.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(s.work, "once"))
		return string(text) == "once\nonce\n"
	}, "both have written")
	stop := make(chan struct{})
	var binding sync.WaitGroup
	binding.Go(func() { // as an agent does
		for {
			select {
			case <-stop:
				return
			default:
			}
			if l, err := net.Listen("tcp", addr); err == nil {
				_ = l.Close()
				t.Error("the port was free")
				return
			}
		}
	})
	status, u, answer := s.upgrade(binary, "wait=0&force=true")
	if status != 200 || !strings.Contains(fmt.Sprint(u.Ended), `the action "clean" the action "exec" the action "queued" the action "run"`) {
		t.Errorf("by force: got %d %s", status, answer)
	}
	awaitAlive(s.T, s.client)
	close(stop)
	binding.Wait()
	if _, record := s.do("GET", "/v1/actions/clean", nil); !strings.Contains(record, `"exit_code":7,`) || !strings.Contains(record, `"ended_by":"cancel"`) {
		t.Errorf("a program that cleans up when it is cancelled: %s", record)
	}
	for id, want := range map[string]string{"run": "done", "exec": "done", "clean": "done", "queued": "cancelled"} {
		if got := s.stateOf(id); got != want {
			_, record := s.do("GET", "/v1/actions/"+id, nil)
			t.Errorf("%s: %s, want %s", id, record, want)
		}
	}
	// Sent again, they are answered from the record.
	s.act("run", map[string]any{"command": stubborn, "blocking": true}, "Idempotency-Key", "run")
	s.want("what ran", s.run("cat once"), "once\nonce")
	if n, err := strconv.Atoi(marked); err != nil || runs(n) {
		t.Errorf("process %q has the mark and lives", marked)
	}
	if !runs(pid) {
		t.Error("the survivor ended: the test shows nothing")
	}
}

// A program that reads an older journal than there is is refused before anything ends.
func TestUpgradeNewerJournal(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	server := buildServer(t)
	s := startUpgradable(t, server, []string{"SESSION_API_KEY=k"}, user...)
	s.run("X=42")
	logs, err := filepath.Glob(filepath.Join(s.state, "journal", "log-*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("got %q, %v", logs, err)
	}
	file, err := os.OpenFile(logs[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const at = 8 // behind the magic
	old := make([]byte, 4)
	if _, err := file.ReadAt(old, at); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(binary.LittleEndian.AppendUint32(nil, 1000), at); err != nil {
		t.Fatal(err)
	}
	status, _, answer := s.upgrade(server, "force=true")
	if status != http.StatusUnprocessableEntity || !strings.Contains(answer, "version 1000") {
		t.Errorf("got %d %s", status, answer)
	}
	s.want("the shell", s.run("echo $X"), "42")
	if _, err := file.WriteAt(old, at); err != nil {
		t.Fatal(err)
	}
}

// A program that cannot be executed at last leaves the server running, without its sessions, and with its journal.
func TestUpgradeNotExecuted(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	s := startUpgradable(t, buildServer(t), []string{"SESSION_API_KEY=k"}, user...)
	fake := testhelp.ReadFile(t, build(t, "fake", "", "./testdata/fake"))
	locks := filepath.Join(t.TempDir(), "locks")
	write(t, locks, append(fake, " locks"...))
	s.run("X=42; echo ran >> ran", "Idempotency-Key", "first")
	before := s.version()
	for range 2 {
		if status, u, answer := s.upgrade(locks, ""); status != http.StatusOK || u.Version != "v0-fake" {
			t.Errorf("got %d %s", status, answer)
		}
		s.want("version", s.version(), before)
		s.want("a repeated action", s.run("X=42; echo ran >> ran", "Idempotency-Key", "first"), "")
		s.want("the next shell", s.run("echo $X; cat ran"), "\nran")
	}
	c, err := client.New(client.Config{BaseURL: "unix://" + filepath.Join(s.dir, "s"), Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Upgrade(t.Context(), bytes.NewReader(append(fake, " locks"...)), 0, false); err == nil || !strings.Contains(err.Error(), "keeps running without its sessions") {
		t.Errorf("the client: %v", err)
	}
	if _, metrics := s.do("GET", "/metrics", nil); !strings.Contains(metrics, `actiond_upgrades_total{result="failed"} 3`+"\n") || !strings.Contains(metrics, `actiond_upgrades_total{result="done"} 0`+"\n") {
		t.Error("the upgrades are not counted")
	}
}
