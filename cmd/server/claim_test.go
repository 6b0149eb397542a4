package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/testhelp"
)

// claimable runs the whole program without a key until it ends by itself or
// with the test.
func claimable(t *testing.T, args ...string) (url string, log *testhelp.Buffer, done chan error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	log, done = &testhelp.Buffer{}, make(chan error, 1)
	args = append([]string{"--addr", "unix:" + socket, "--working-dir", t.TempDir(), "--claim"}, args...)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	go func() { done <- run(t.Context(), args, env, io.Discard, log) }()
	url = "unix://" + socket
	c := to(t, url, "")
	testhelp.Eventually(t, func() bool { return c.Ready(t.Context()) == nil }, "the server is ready")
	return url, log, done
}

func to(t *testing.T, url, key string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: url, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The owner's variables are in every shell. The key is nowhere that the agent
// sees: not in its shells, not in what the server was started with, not in its
// log.
func TestClaimedSandbox(t *testing.T) {
	t.Parallel()
	url, log, _ := claimable(t)
	const key = "an-owner's-key-of-enough-characters"
	owner := to(t, url, key)
	if err := owner.Claim(t.Context(), api.Claim{Key: key, Owner: "me", Env: map[string]string{"TOKEN": "it's \"quoted\" $HOME\n", "PAGER": "less"}}); err != nil {
		t.Fatal(err)
	}
	for _, session := range []string{"", "other"} {
		o, err := owner.Do(t.Context(), api.Request{Session: session, Action: api.RunAction{Command: `printf '<%s|%s>\n' "$TOKEN" "$PAGER"; env | grep -c owner`}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := o.(api.RunObservation).Content, "<it's \"quoted\" $HOME\n|less>\n0"; strings.ReplaceAll(got, "\r", "") != want {
			t.Errorf("session %q: got %q, want %q", session, got, want)
		}
	}
	for _, file := range []string{"environ", "cmdline"} {
		data := testhelp.ReadFile(t, fmt.Sprintf("/proc/%d/%s", os.Getpid(), file))
		if strings.Contains(string(data), key) || strings.Contains(string(data), "quoted") {
			t.Errorf("a secret is in /proc/self/%s", file)
		}
	}
	if strings.Contains(log.String(), key) || strings.Contains(log.String(), "quoted") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

// The program ends by itself, with what runs in its shells, and without an error.
func TestProgramEndsWithItsTime(t *testing.T) {
	t.Parallel()
	url, log, done := claimable(t)
	const key = "another-owner's-key-of-enough-chars"
	owner := to(t, url, key)
	if err := owner.Claim(t.Context(), api.Claim{Key: key}); err != nil {
		t.Fatal(err)
	}
	pids, err := owner.Sessions(t.Context())
	if err != nil || len(pids) != 1 {
		t.Fatalf("got %v, %v", pids, err)
	}
	if _, err := owner.Renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pids[0].PID)); err == nil {
		t.Error("the shell is still there")
	}
	if !strings.Contains(log.String(), "its time to live is over") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

// started runs a server in this process, on a port that the system chooses and logs, and
// returns its address when it has that. The server ends with stop, or with the test.
func started(t *testing.T, env []string, flags ...string) (addr string, log *testhelp.Buffer, stop func() error) {
	t.Helper()
	log, done := &testhelp.Buffer{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	host := "localhost"
	if _, err := net.DefaultResolver.LookupHost(t.Context(), host); err != nil {
		host = "127.0.0.1" // there is no /etc/hosts
	}
	go func() {
		done <- run(ctx, append([]string{"--addr", host + ":0", "--working-dir", t.TempDir()}, flags...), env, io.Discard, log)
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	port := regexp.MustCompile(`msg=serving addr=((?:127\.0\.0\.1|\[::1\]):[1-9]\d*) `)
	for !port.MatchString(log.String()) {
		select {
		case err := <-done:
			t.Fatalf("it ended with %v and logged %q", err, log)
		case <-time.After(time.Millisecond):
		}
	}
	return port.FindStringSubmatch(log.String())[1], log, stop
}

// The port that the system chose is in the log, where the starter of the server
// finds it. Only this machine reaches it, so there is no warning.
func TestChosenPort(t *testing.T) {
	t.Parallel()
	addr, log, stop := started(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()})
	if _, err := to(t, "http://"+addr, "").Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") {
			t.Errorf("warned: %s", line)
		}
	}
}
