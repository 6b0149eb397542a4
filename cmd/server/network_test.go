package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// loopbackVariable makes the test program bring the loopback interface up and execute its arguments.
const loopbackVariable = "TEST_LOOPBACK"

// upLoopback does what an engine does in a container without a network.
func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := struct { // ifreq
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: unix.IFF_UP}
	copy(request.name[:], "lo")
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}

func executeWithLoopback() {
	os.Unsetenv(loopbackVariable)
	err := upLoopback()
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	_, _ = os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(1)
}

// startEgress starts an egress proxy with a sandbox, and returns the path of its socket.
func startEgress(t *testing.T, policy string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "egress") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const id = "0123456789ab"
	proxy := egress.New(egress.Config{RunDir: dir, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(proxy.Close)
	p, err := egress.ParsePolicy([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(proxy.SetHost(nil), proxy.Apply(id, egress.Conf{Policy: p})); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, id, "s")
}

// TestNetworkPolicy: a sandbox without a network has the local proxy alone, at its own address, and
// actions are told what was denied to their processes; also after a crash of the server.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	needMounts(t)
	binary := buildServer(t)
	script := filepath.Join(t.TempDir(), "init")
	testhelp.WriteProgram(t, script, fmt.Sprintf("#!/bin/sh\nmount -t proc proc /proc && exec '%s' '%s' init \"$@\"\n", os.Args[0], binary))
	s := newServer(t, script, []string{loopbackVariable + "=1"}, "--username", "nobody", "--claim")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS}
	s.key = ownerKey
	s.start()
	socket := startEgress(t, `{"mode":"allowlist","allow":["10.0.0.1"]}`)
	if status := s.claim(ownerKey, fmt.Sprintf(`,"env":{"ALL_PROXY":"mine"},"network":{"egress":"unix:%s","names":true}`, socket)); status != http.StatusNoContent {
		t.Fatalf("the claim: %d", status)
	}
	ask := func(target string) string {
		return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n' >&3; read -r -u 3 line; echo "${line%%?}"`, target)
	}
	// A program that knows no proxy looks the name up, and connects to what it finds.
	const byName = `exec 3<>/dev/udp/127.0.0.1/53; printf '\0\7\1\0\0\1\0\0\0\0\0\0\4evil\7example\0\0\1\0\1' >&3
		at=$(dd bs=600 count=1 2>/dev/null <&3 | tail -c 4 | od -An -tu1 | tr -s ' ' . | sed 's/^[.]//')
		exec 4<>/dev/tcp/$at/80; printf 'GET / HTTP/1.0\r\n\r\n' >&4; head -n 1 <&4 | tr -d '\r'`
	do := func(kind string, args map[string]any) (o api.Observation) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"action": map[string]any{"action": kind, "args": args}})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := s.do("POST", "/v1/actions", bytes.NewReader(body))
		if o, err = api.DecodeObservation([]byte(answer)); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		return o
	}
	for _, when := range []string{"at first", "after a crash"} {
		if when == "after a crash" {
			s.crash()
		}
		s.want("the variables", s.run("echo $http_proxy $HTTPS_PROXY ${all_proxy-none} $ALL_PROXY $NODE_USE_ENV_PROXY"),
			"http://127.0.0.1:3128 http://127.0.0.1:3128 none mine 1")
		for kind, args := range map[string]map[string]any{
			"run":  {"command": ask("evil.example:443")},
			"exec": {"argv": []string{"bash", "-c", ask("evil.example:443")}},
		} {
			o := do(kind, args)
			if got := strings.TrimSpace(api.Content(o)); got != "HTTP/1.1 403 Forbidden" {
				t.Errorf("%s %s: got %q", kind, when, got)
			}
			want := api.Denied{Host: "evil.example", Port: 443, Reason: "not in the allow list", Count: 1, Process: "bash"}
			n := api.NetworkOf(o)
			if n == nil || len(n.Denied) != 1 || !n.Attributed {
				t.Errorf("%s %s: got %+v", kind, when, n)
				continue
			}
			want.FirstMS = n.Denied[0].FirstMS
			if n.Denied[0] != want {
				t.Errorf("%s %s: got %+v", kind, when, n)
			}
		}
		o := do("exec", map[string]any{"argv": []string{"bash", "-c", byName}})
		if n := api.NetworkOf(o); n == nil || len(n.Denied) != 1 || !n.Attributed || n.Denied[0].Host != "evil.example" || n.Denied[0].Port != 80 || n.Denied[0].Process != "bash" ||
			strings.TrimSpace(api.Content(o)) != "HTTP/1.0 403 Forbidden" {
			t.Errorf("by name %s: got %+v, %+v", when, o, n)
		}
		o = do("exec", map[string]any{"argv": []string{"bash", "-c", ask("10.0.0.1:1")}}) // which no rule opens
		if n := api.NetworkOf(o); n == nil || n.Denied[0].Reason != "private address" {
			t.Errorf("%s: got %+v", when, n)
		}
		if o := do("exec", map[string]any{"command": "true"}); api.NetworkOf(o) != nil {
			t.Errorf("%s: got %+v", when, o)
		}
		s.want("the agent at the socket", s.run("test -e "+socket+" || echo hidden"), "hidden")
		s.want("another proxy", s.run("exec 4<>/dev/tcp/127.0.0.1/3128 && cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '"), "lo")
		var state api.NetworkState
		status, answer := s.do("GET", "/v1/network", nil)
		if err := json.Unmarshal([]byte(answer), &state); err != nil || status != http.StatusOK || state.Egress != "ok" || !state.Names || len(state.Denied) != 4 {
			t.Errorf("%s: %d %s", when, status, answer)
		}
	}
}
