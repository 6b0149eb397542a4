package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// post sends an action that is not waited for.
func (k *killable) post(t *testing.T, id, session, kind, args string) {
	t.Helper()
	body := fmt.Sprintf(`{"id":%q,"action":{"action":%q,"session":%q,"args":%s}}`, id, kind, session, args)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/v1/actions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "respond-async, wait=0")
	resp, err := k.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s: got %s", id, resp.Status)
	}
}

// pidIn waits for the number of a process in a file.
func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	testhelp.Eventually(t, func() bool {
		text, _ := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && strings.HasSuffix(string(text), "\n")
	}, "%s has the number of a process", path)
	return pid
}

// runs reports whether a process has a command line, which it has until its end.
func runs(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return len(line) > 0
}

// A server that is started again ends what the one that was killed left of actions without an end, and of
// sessions, before it answers. What an action that had ended left lives on, and so does what has another mark, or
// none. A forged mark reaches the process that has it.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	binary, state, dir := buildServer(t), t.TempDir(), t.TempDir()
	s := startKillable(t, binary, state)
	tests := []struct {
		name, kind, command string
		ends                bool
	}{
		{"sleep", "exec", `echo $$ >$P; exec sleep 1000`, true},
		{"stubborn", "exec", `trap '' HUP INT TERM; echo $$ >$P; while :; do sleep 1; done`, true},
		{"setsid", "exec", `setsid sh -c 'trap "" HUP TERM; echo $$ >$P; while :; do sleep 1; done' & wait`, true},
		{"run", "run", `trap '' HUP INT TERM; sh -c 'echo $$ >$P; while :; do sleep 1; done'`, true},
		{"nohup", "run", `setsid nohup sh -c 'echo $$ >$P; exec sleep 1000' >/dev/null 2>&1 & :`, true},
		{"left", "exec", `setsid sh -c 'echo $$ >$P; exec sleep 1000' >/dev/null 2>&1 & :`, false},
		{"unmarked", "exec", `env -i PATH="$PATH" setsid sh -c 'echo $$ >'$P'; exec sleep 1000'; :`, false},
	}
	pids := map[string]int{}
	for _, tt := range tests {
		path := filepath.Join(dir, tt.name)
		args := fmt.Sprintf(`{"command":%q}`, "export P="+path+"; "+tt.command)
		if tt.kind == "run" { // however long the other shells take to start
			args = strings.TrimSuffix(args, "}") + `,"blocking":true}`
		}
		s.post(t, tt.name, tt.name, tt.kind, args)
		pids[tt.name] = pidIn(t, path)
	}
	for _, name := range []string{"nohup", "left"} {
		testhelp.Eventually(t, func() bool { return s.get("/v1/actions/"+name+"?wait=1", `"state":"done"`) }, "%s ends", name)
	}
	environ := testhelp.ReadFile(t, fmt.Sprintf("/proc/%d/environ", pids["sleep"]))
	for name, mark := range map[string]string{"forged": "", "another mark": "ACTIOND_TREE=AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if mark == "" && strings.HasPrefix(v, "ACTIOND_TREE=") {
				mark = v
			}
		}
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }() // it is killed
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		pids[name] = cmd.Process.Pid
	}
	t.Cleanup(func() { // what the servers leave on purpose
		for name, pid := range pids {
			if process, err := os.FindProcess(pid); err == nil && name != "forged" && name != "another mark" && runs(pid) {
				_ = process.Kill()
			}
		}
	})
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed

	s = startKillable(t, binary, state)
	want := map[string]bool{"forged": true, "another mark": false}
	for _, tt := range tests {
		want[tt.name] = tt.ends
	}
	for name, ends := range want {
		if runs(pids[name]) == ends {
			t.Errorf("%s: process %d ended is %t, want %t", name, pids[name], !ends, ends)
		}
	}
	for _, name := range []string{"sleep", "stubborn", "setsid", "run", "unmarked"} {
		if !s.get("/v1/actions/"+name, `"state":"unknown"`) {
			t.Errorf("%s is not unknown", name)
		}
	}
}

// get reports whether an answer has a text in it.
func (k *killable) get(path, want string) bool {
	resp, err := k.client.Get("http://sandbox" + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // a part of it does not have the text
	return strings.Contains(string(body), want)
}

// A process that got the number of a recorded program lives on: the server runs where numbers begin anew.
func TestLeftoverOfReusedNumber(t *testing.T) {
	t.Parallel()
	needMounts(t)
	const bystanders = 400
	binary := buildServer(t)
	inNamespace := func(before string, args ...string) *serverProcess {
		script := filepath.Join(t.TempDir(), "init")
		testhelp.WriteProgram(t, script, fmt.Sprintf("#!/bin/sh\nmount -t proc proc /proc && %s exec '%s' init \"$@\"\n", before, binary))
		s := newServer(t, script, nil, args...)
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		s.start()
		return s
	}
	dead := inNamespace("")
	path := filepath.Join(dead.dir, "pid")
	dead.act("exec", map[string]any{"command": "echo $$ >" + path + "; exec sleep 1000"}, "Prefer", "respond-async, wait=0")
	pid := pidIn(t, path)
	if pid > bystanders {
		t.Fatalf("the program has the number %d", pid)
	}
	_ = dead.cmd.Process.Kill() // and all in its namespace
	_ = dead.cmd.Wait()
	s := inNamespace(fmt.Sprintf("for i in $(seq %d); do sleep 1000 & done;", bystanders), "--state-dir", dead.state)
	s.want("the number", s.run(fmt.Sprintf(`tr '\0' ' ' </proc/%d/cmdline`, pid)), "sleep 1000")
}
