package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/server/internal/pid1"
	"github.com/actiond/actiond/internal/testhelp"
)

// inContainer starts a server whose init is PID 1, with the processes of a container.
func inContainer(t *testing.T, binary string, args ...string) *serverProcess {
	t.Helper()
	needMounts(t)
	script := filepath.Join(t.TempDir(), "init")
	text := fmt.Sprintf("#!/bin/sh\nmount -t proc proc /proc && exec '%s' init \"$@\"\n", binary)
	testhelp.WriteProgram(t, script, text)
	s := newServer(t, script, nil, append([]string{"--username", "nobody", "--claim"}, args...)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	s.key = ownerKey
	s.start()
	return s
}

const ownerKey = "the-key-of-the-owner-of-a-sandbox"

// server is the number of the server's process, outside of its container.
func (s *serverProcess) server() int {
	s.Helper()
	return slices.Min(children(s.T, s.cmd.Process.Pid))
}

// crash kills the server, and returns when the next one answers.
func (s *serverProcess) crash() {
	s.Helper()
	old := s.server()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	testhelp.Eventually(s.T, func() bool { // the old one leaves children behind for a moment
		now := children(s.T, s.cmd.Process.Pid)
		return len(now) > 0 && !slices.Contains(now, old)
	}, "another server runs")
	awaitAlive(s.T, s.client)
}

func (s *serverProcess) claim(key, more string) (status int) {
	s.Helper()
	status, _ = s.do("POST", "/v1/claim", strings.NewReader(`{"key":"`+key+`"`+more+`}`))
	return status
}

func (s *serverProcess) life() (l api.Life) {
	s.Helper()
	status, answer := s.do("GET", "/v1/status", nil)
	if err := json.Unmarshal([]byte(answer), &l); err != nil || status != http.StatusOK || l.Deadline == nil {
		s.Fatalf("/v1/status: %d %s", status, answer)
	}
	return l
}

// A server that crashes is started again in its container, with its owner and its limits.
// A running action is unknown and has ended, and finished ones stay.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := inContainer(t, buildServer(t), "--ttl", "30m")

	// Before the claim.
	_, answer := s.do("GET", "/v1/status", nil)
	if !strings.Contains(answer, "no owner") {
		t.Errorf("unclaimed: %s", answer)
	}
	s.crash()
	if status := s.claim(ownerKey, `,"owner":"me","env":{"TOKEN":"of the owner"},"ttl_seconds":7200,"idle_limit_seconds":3000`); status != http.StatusNoContent {
		t.Fatalf("the claim: %d", status)
	}
	before := s.life()

	s.want("a file", s.run("echo kept >file; echo done", "Idempotency-Key", "first"), "done")
	// A process that another one takes the place of, again and again.
	s.run(`cat >hop <<'END'
sleep 0.01
setsid sh ./hop &
END
setsid sh ./hop </dev/null >/dev/null 2>&1 &`)
	s.act("run", map[string]any{"command": "echo begins; sleep 1000", "timeout": 1000, "session": "busy"}, "Idempotency-Key", "busy", "Prefer", "respond-async")
	testhelp.Eventually(t, func() bool {
		_, output := s.do("GET", "/v1/actions/busy/output", nil)
		return output == "begins\n" || output == "begins\r\n"
	}, "the action begins")
	s.crash()

	if status := s.claim("another-key-of-someone-who-is-late", ""); status != http.StatusConflict {
		t.Errorf("another claim: %d", status)
	}
	if status := s.claim(ownerKey, `,"ttl_seconds":1`); status != http.StatusNoContent {
		t.Errorf("the same claim: %d", status)
	}
	after := s.life()
	if moved := after.Deadline.Sub(*before.Deadline).Abs(); after.Owner != "me" || after.IdleLimitSeconds != 3000 || moved > time.Minute {
		t.Errorf("the life was %+v and is %+v", before, after)
	}
	_, record := s.do("GET", "/v1/actions/busy", nil)
	_, output := s.do("GET", "/v1/actions/busy/output", nil)
	if !strings.Contains(record, `"state":"unknown"`) || !strings.HasPrefix(output, "begins") {
		t.Errorf("what ran: %s, output %q", record, output)
	}
	s.want("a repeated action", s.run("echo kept >file; echo done", "Idempotency-Key", "first"), "done")
	s.want("the next action", s.run("cat file; echo $TOKEN; id -un"), "kept\nof the owner\nnobody")
	s.want("what is left of the dead server", s.run("grep -lE 'slee[p]|ho[p]' /proc/[0-9]*/cmdline; cat /proc/[0-9]*/status | grep -c '^State:.Z'"), "0")
	// The agent reaches the memory by none of the processes.
	s.want("descriptors", s.run("ls -l /proc/[0-9]*/fd 2>&1 | grep -c memfd; ls /proc/1/fd /proc/$PPID/fd 2>&1 | grep -c 'ermission denied'"), "0\n2")

	// The limits move when the owner moves them.
	if status, answer := s.do("POST", "/v1/renew", strings.NewReader(`{"ttl_seconds":36000}`)); status != http.StatusOK {
		t.Errorf("renew: %d %s", status, answer)
	}
	before = s.life()
	s.crash()
	if moved := s.life().Deadline.Sub(*before.Deadline).Abs(); moved > time.Minute || before.IdleLimitSeconds != 3000 {
		t.Errorf("the life after it was moved was %+v and is %+v", before, s.life())
	}
	s.want("after it", s.run("cat file; echo $TOKEN"), "kept\nof the owner")

	// To be told to end is no crash.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != 0 {
		t.Errorf("SIGTERM ended it with %d", got)
	}
}

// Time goes on while no server runs, and its end is no crash.
func TestRestartEnds(t *testing.T) {
	t.Parallel()
	s := inContainer(t, buildServer(t))
	server := s.server()
	if status := s.claim(ownerKey, `,"ttl_seconds":3`); status != http.StatusNoContent {
		t.Fatalf("the claim: %d", status)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil { // the next one may end before it answers
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	log := s.log.String()
	if got := s.cmd.ProcessState.ExitCode(); got != 0 || !strings.Contains(log, "it is started again") || !strings.Contains(log, "its time to live is over") {
		t.Errorf("it ended with %d:\n%s", got, &s.log)
	}
}

// An agent that takes its working directory away does not keep the next server from starting.
func TestRestartMakesDirectory(t *testing.T) {
	t.Parallel()
	s := inContainer(t, buildServer(t))
	if err := os.Chmod(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if status := s.claim(ownerKey, ""); status != http.StatusNoContent {
		t.Fatalf("the claim: %d", status)
	}
	s.run("cd / && mv " + s.work + " " + s.work + ".away")
	s.crash()
	s.want("the directory", s.run("pwd; stat -c %U ."), s.work+"\nnobody")
}

// A server has its address before it starts a shell, which may read files of the agent: what they
// start cannot answer in its place.
func TestBindsFirst(t *testing.T) { //nolint:paralleltest // it sets a variable
	dir := testhelp.PublicDir(t)
	text := fmt.Sprintf("#!/bin/sh\nif grep -q \"${PWD%%/work}/s\\$\" /proc/net/unix; then echo bound; else echo free; fi >>%s/seen\nexec /bin/bash \"$@\"\n", dir)
	testhelp.WriteProgram(t, filepath.Join(dir, "bash"), text)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := inContainer(t, buildServer(t))
	seen := func() string {
		text := testhelp.ReadFile(t, filepath.Join(dir, "seen"))
		return string(text)
	}
	if got := seen(); !strings.HasPrefix(got, "bound\n") {
		t.Errorf("the first shell saw %q", got)
	}
	s.crash()
	if got := seen(); strings.Contains(got, "free") || !strings.HasSuffix(got, "\nbound\n") {
		t.Errorf("the next shell saw %q", got)
	}
}

// A server that crashes again and again ends its sandbox. A root agent can do that to it.
func TestRestartBound(t *testing.T) {
	t.Parallel()
	s := inContainer(t, buildServer(t))
	for range pid1.MaxRestarts {
		s.crash()
	}
	if err := syscall.Kill(s.server(), syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	const want = "server: its server crashed 6 times within 10m0s, at last: the server ended with status 2"
	if got := s.cmd.ProcessState.ExitCode(); got != pid1.CrashedStatus || !strings.Contains(s.log.String(), want) {
		t.Errorf("it ended with %d:\n%s", got, &s.log)
	}
}
