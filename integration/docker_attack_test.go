//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// TestDockerAgentAgainstServer lets the agent try what worked while it shared
// the server's user.
func TestDockerAgentAgainstServer(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage)})
	key := keyOf(t, s)
	const server = `S=$(for p in /proc/[0-9]*; do read -r n < $p/comm; test "$n" = server && echo ${p#/proc/}; done); `
	for _, tt := range []struct {
		name, command string
		want          string // part of the output
	}{
		{"kill init", `kill -9 1; echo $?`, "not permitted"},
		{"kill the server", server + `kill -9 $S; echo $?`, "not permitted"},
		{"the server's environment", server + `cat /proc/$S/environ`, "Permission denied"},
		{"the server's memory", server + `cat /proc/$S/mem`, "Permission denied"},
		{"the server's descriptors", server + `ls /proc/$S/fd`, "Permission denied"},
		{"the socket", `ls /run/actiond`, "Permission denied"},
		{"the server's directory", `ls /run/actiond`, "Permission denied"},
		{"replace the socket", `ln -sf /var/run/docker.sock /run/actiond/sock`, "Permission denied"},
		{"move the directory", `mv /run/actiond /run/x`, "cannot move"},
		{"the server's file", `echo x > /.actiond/server`, "Read-only file system"},
		{"the passwords", `cat /etc/shadow`, "Permission denied"},
		{"gain privileges", `grep NoNewPrivs /proc/self/status`, "1"},
		{"capabilities", `grep CapEff /proc/self/status`, "0000000000000000"},
		{"the host's disks", `ls /dev/vda /dev/sda`, "No such file"},
		{"mount", `mount -t tmpfs none /mnt`, "must be superuser"},
		{"new user namespace", `unshare -U true`, "not permitted"},
		{"kernel's log", `dmesg`, "not permitted"},
	} {
		if got, _ := run(t, s, tt.command); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s:\ngot  %q\nwant %q in it", tt.name, tt.command, got, tt.want)
		}
	}
	// Bracketed, so that the search does not find itself.
	pattern := "[" + key[:1] + "]" + key[1:]
	got, _ := run(t, s, `env | grep -c '`+pattern+`'; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -ac '`+pattern+`'`)
	if got != "0\n0" {
		t.Errorf("got %q, want no line with the key", got)
	}
	for _, args := range [][]string{{"inspect", s.Instance}, {"logs", s.Instance}, {"top", s.Instance, "aux"}} {
		if out := dockerCLI(t, args...); strings.Contains(out, key) {
			t.Errorf("docker %s shows the key", args[0])
		}
	}
	if got, code := run(t, s, "echo alive"); got != "alive" || code != 0 {
		t.Errorf("after all this: got %q, exit code %d", got, code)
	}
}

func TestDockerKeys(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	a := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	b := create(t, h, sandbox.Spec{Image: busyboxImage})
	keyA := keyOf(t, a)
	for name, key := range map[string]string{"none": "", "of another sandbox": keyA, "wrong": strings.Repeat("0", len(keyA))} {
		if _, err := runIn(t.Context(), b.Dial, key, "true"); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("key %s: got %v, want 403", name, err)
		}
	}
}

// TestDockerSwappedSocket plays an agent that has got at the directory.
func TestDockerSwappedSocket(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	h := testHost(t, func(c *docker.Config) { c.StateDir = state })
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	run := filepath.Join(state, "sandboxes", s.ID, "run")
	sock := filepath.Join(run, "sock")
	if err := os.Rename(sock, sock+".real"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		put   func() error
		clean func() error
	}{
		{"link to the engine", func() error { return os.Symlink("/var/run/docker.sock", sock) }, func() error { return os.Remove(sock) }},
		{"link to the real one", func() error { return os.Symlink("sock.real", sock) }, func() error { return os.Remove(sock) }},
		{"a file", func() error { return os.WriteFile(sock, nil, 0o600) }, func() error { return os.Remove(sock) }},
		{"a pipe", func() error { return exec.Command("mkfifo", sock).Run() }, func() error { return os.Remove(sock) }},
		{"somebody else's socket", func() error {
			l, err := net.Listen("unix", sock)
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			return os.Chown(sock, 1000, 1000)
		}, func() error { return os.Remove(sock) }},
		{"the directory a link", func() error {
			if err := os.Rename(run, run+".real"); err != nil {
				return err
			}
			return os.Symlink("/var/run", run)
		}, func() error { return errors.Join(os.Remove(run), os.Rename(run+".real", run)) }},
	} {
		if err := tt.put(); err != nil {
			t.Fatal(err)
		}
		conn, err := s.Dial(t.Context())
		if err == nil {
			conn.Close()
			t.Errorf("%s: Dial connected", tt.name)
		}
		if err := tt.clean(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(sock+".real", sock); err != nil {
		t.Fatal(err)
	}
	if conn, err := s.Dial(t.Context()); err != nil {
		t.Errorf("the real socket: %v", err)
	} else {
		conn.Close()
	}
}

// TestDockerListenerOfAnotherUser has a socket that is root's file, but on
// which another user listens.
func TestDockerListenerOfAnotherUser(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	h := testHost(t, func(c *docker.Config) { c.StateDir = state })
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	sock := filepath.Join(state, "sandboxes", s.ID, "run", "sock")
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("needs /usr/bin/python3, which is not on this machine")
	}
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `import os, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(1000); s.listen(); print("up", flush=True); time.sleep(60)`, sock)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Dial(t.Context()); !errors.Is(err, docker.ErrUnsafeSocket) {
		t.Errorf("got %v, want ErrUnsafeSocket", err)
	}
}

func TestDockerBombs(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	for _, tt := range []struct{ name, command string }{
		{"forks", `f() { f | f & }; f; sleep 1; true`},
		{"memory", `tail /dev/zero; true`},
		{"output", `timeout 2 yes; true`},
		{"shared memory", `head -c 200m /dev/zero > /dev/shm/x; rm /dev/shm/x; true`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := create(t, h, sandbox.Spec{Image: image(t, debianImage), Memory: 128 << 20, Pids: 128})
			key := keyOf(t, s)
			if _, err := runIn(t.Context(), s.Dial, key, tt.command); err != nil {
				t.Logf("the action: %v", err) // it may fail; the server must live
			}
			if _, err := call(t.Context(), s.Dial, key, http.MethodGet, "/alive", nil); err != nil {
				t.Errorf("the server died of it: %v", err)
			}
			var info []struct{ State struct{ Status string } }
			if err := json.Unmarshal([]byte(dockerCLI(t, "inspect", s.Instance)), &info); err != nil || info[0].State.Status != "running" {
				t.Errorf("the container is %+v, %v", info, err)
			}
		})
	}
}

// TestDockerAllProcesses has an agent that takes every process it may have, and a
// controller that goes on: a server that cannot make a thread then ends.
func TestDockerAllProcesses(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage), Pids: 128})
	key := keyOf(t, s)
	if got, _ := run(t, s, "(while :; do sleep 1000 & done) >/dev/null 2>&1 & sleep 3; echo full"); !strings.Contains(got, "full") {
		t.Logf("got %q", got) // the shell tries to fork for a while
	}
	var all sync.WaitGroup
	for i := range 10 {
		for _, action := range []map[string]any{
			{"action": "write", "args": map[string]any{"path": fmt.Sprintf("/workspace/%d", i), "content": "x"}},
			{"action": "grep", "args": map[string]any{"path": "/usr", "pattern": "x"}},
			{"action": "run", "session": fmt.Sprint(i), "args": map[string]any{"command": "true"}},
		} {
			all.Go(func() { // whatever comes of it
				_, _ = call(t.Context(), s.Dial, key, http.MethodPost, "/execute_action", map[string]any{"action": action})
			})
		}
	}
	all.Wait()
	if _, err := call(t.Context(), s.Dial, key, http.MethodGet, "/alive", nil); err != nil {
		t.Errorf("the server died of it: %v\n%.1000s", err, dockerCLI(t, "logs", s.Instance))
	}
}

// TestDockerSystemCalls has what the profile of an older engine lets through.
func TestDockerSystemCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := `package main

import ("fmt"; "syscall")

func main() {
	for _, c := range []struct{ name string; nr, a, b uintptr }{
		{"io_uring_setup", 425, 1, 0}, {"vsock", syscall.SYS_SOCKET, 40, 1}, {"alg", syscall.SYS_SOCKET, 38, 5},
		{"keyctl", 250, 0, 0}, {"userfaultfd", 323, 0, 0}, {"bpf", 321, 0, 0}, {"inet", syscall.SYS_SOCKET, 2, 1},
	} {
		_, _, err := syscall.RawSyscall(c.nr, c.a, c.b, 0)
		fmt.Println(c.name, err == syscall.EPERM)
	}
}`
	testhelp.WriteFile(t, filepath.Join(dir, "main.go"), source, 0o600)
	cmd := exec.Command("go", "build", "-trimpath", "-o", "calls", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h := testHost(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Mounts: []sandbox.Mount{{Source: dir, Target: "/calls", ReadOnly: true}}})
	want := "io_uring_setup true\nvsock true\nalg true\nkeyctl true\nuserfaultfd true\nbpf true\ninet false"
	if got, _ := run(t, s, "/calls/calls"); got != want {
		t.Errorf("refused with EPERM:\ngot\n%s\nwant\n%s", got, want)
	}
}

// TestDockerSwappedMount has an agent that replaces the mount of another
// sandbox, which lies in its own, by a link to a directory of root's, which
// might be mounted.
func TestDockerSwappedMount(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	dir, victim := testhelp.PublicDir(t), testhelp.PublicDir(t)
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o755), os.Chown(dir, 1000, 1000), os.WriteFile(filepath.Join(victim, "secret"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	mallory := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Mounts: []sandbox.Mount{{Source: dir, Target: "/workspace"}}})
	spec := sandbox.Spec{Image: busyboxImage, Key: t.Name(), Mounts: []sandbox.Mount{{Source: sub, Target: "/workspace"}}}
	s := create(t, h, spec)
	if err := h.Stop(ctx, s, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if out, code := run(t, mallory, "mv sub old && ln -s "+victim+" sub"); code != 0 {
		t.Fatal(out)
	}
	if err := h.Start(ctx, s); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Start after the swap: got %v, want ErrInvalid", err)
	}
	if got, err := h.Get(ctx, s.ID); err != nil || got.State != sandbox.Stopped {
		t.Errorf("afterwards: got %+v, %v, want it stopped", got, err)
	}
	if out, code := run(t, mallory, "rm sub && mv old sub"); code != 0 {
		t.Fatal(out)
	}
	if err := h.Start(ctx, s); err != nil {
		t.Errorf("Start after the swap was undone: %v", err)
	}

	// And back and forth while sandboxes are made. A server that began before the
	// mount was checked would give root's directory to its user.
	key := keyOf(t, mallory)
	swapping := make(chan struct{})
	swap, stop := context.WithCancel(ctx)
	go func() {
		defer close(swapping)
		_, _ = runIn(swap, mallory.Dial, key, "touch on; while test -e on; do mv sub old; ln -s "+victim+" sub; rm sub; mv old sub; done")
	}()
	for range 20 {
		other, err := h.Create(ctx, sandbox.Spec{Image: busyboxImage, Mounts: []sandbox.Mount{{Source: sub, Target: "/workspace"}}})
		if err != nil {
			continue // refused, at one of the checks
		}
		if out, _ := run(t, other, "ls /workspace"); strings.Contains(out, "secret") {
			t.Error("a sandbox got what the link leads to")
		}
		if err := h.Delete(ctx, other); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "on")); err != nil {
		t.Error(err)
	}
	<-swapping
	stop()
	for _, name := range []string{victim, filepath.Join(victim, "secret")} {
		if info, err := os.Stat(name); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: got %+v, %v, want it root's", name, info, err)
		}
	}
}

// TestDockerMountThroughLink has an agent that leaves links in what it mounts,
// for sandboxes that are made later, also after its own is gone.
func TestDockerMountThroughLink(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	dir, victim := testhelp.PublicDir(t), testhelp.PublicDir(t)
	if err := errors.Join(os.Chown(dir, 1000, 1000), os.Chown(victim, 1234, 1234), os.Mkdir(filepath.Join(victim, "d"), 0o700), os.Mkdir(filepath.Join(dir, "real"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"agent", "root"} { // the second one's links belong to root
		mallory := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), User: user, Mounts: []sandbox.Mount{{Source: dir, Target: "/share"}}})
		if out, code := run(t, mallory, "cd /share && rm -f sub env && ln -s "+victim+" sub && ln -s /etc/passwd env"); code != 0 {
			t.Fatal(out)
		}
		check := func(when string) {
			t.Helper()
			for _, source := range []string{"sub", "sub/d", "real/../sub"} {
				other, err := h.Create(ctx, sandbox.Spec{Image: busyboxImage, Mounts: []sandbox.Mount{{Source: dir + "/" + source, Target: "/data"}}})
				if !errors.Is(err, sandbox.ErrInvalid) {
					t.Errorf("%s, %s, %s: got %+v, %v, want ErrInvalid", user, when, source, other, err)
				}
			}
			if f, err := h.Open(ctx, filepath.Join(dir, "env")); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s, %s: a file of variables: got %v, %v, want ErrInvalid", user, when, f, err)
			}
		}
		check("while it runs")
		if err := h.Stop(ctx, mallory, time.Second); err != nil {
			t.Fatal(err)
		}
		check("stopped")
		if err := h.Delete(ctx, mallory); err != nil {
			t.Fatal(err)
		}
		check("removed")
	}
	if other, err := h.Create(ctx, sandbox.Spec{Image: busyboxImage, Mounts: []sandbox.Mount{{Source: filepath.Join(dir, "real"), Target: "/data"}}}); err != nil {
		t.Errorf("a directory without a link on the way: %v", err)
	} else if err := h.Delete(ctx, other); err != nil {
		t.Error(err)
	}
}

// TestDockerLinkAtTarget has an agent that puts links where its own sandbox, or
// the next one, mounts something.
func TestDockerLinkAtTarget(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	dir, inner := testhelp.PublicDir(t), testhelp.PublicDir(t)
	if err := errors.Join(os.Chown(dir, 1000, 1000), os.Mkdir(filepath.Join(dir, "a"), 0o755), os.Chown(filepath.Join(dir, "a"), 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Mounts: []sandbox.Mount{{Source: dir, Target: "/share"}, {Source: inner, Target: "/share/a/etc"}}})
	if out, code := run(t, s, "cd /share && mv a b && ln -s / a"); code != 0 {
		t.Fatal(out)
	}
	if err := h.Stop(ctx, s, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(ctx, s); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Start: got %v, want ErrInvalid", err)
	}
	if got, err := h.Get(ctx, s.ID); err != nil || got.State != sandbox.Stopped {
		t.Errorf("afterwards: got %+v, %v, want it stopped", got, err)
	}
	_, err := h.Create(ctx, sandbox.Spec{Image: busyboxImage, Mounts: []sandbox.Mount{{Source: dir, Target: "/share"}, {Source: inner, Target: "/share/a/etc"}}})
	if !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Create: got %v, want ErrInvalid", err)
	}
}

// TestDockerForeign has containers that look like ours and are not.
func TestDockerForeign(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Key: t.Name()})
	labels := dockerCLI(t, "inspect", "-f", `{{range $k, $v := .Config.Labels}}{{$k}}={{$v}}{{"\n"}}{{end}}`, s.Instance)
	args := []string{"create", "--name", "not-" + s.ID}
	for line := range strings.Lines(labels) {
		if line = strings.TrimSpace(line); line != "" {
			args = append(args, "--label", line)
		}
	}
	spoofed := dockerCLI(t, append(args, busyboxImage, "/bin/true")...)
	t.Cleanup(func() { dockerCLI(t, "rm", "-f", spoofed) })
	name := strings.TrimPrefix(dockerCLI(t, "inspect", "-f", "{{.Name}}", s.Instance), "/")
	if err := h.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	squatter := dockerCLI(t, "create", "--name", name, busyboxImage, "/bin/true")
	t.Cleanup(func() { dockerCLI(t, "rm", "-f", squatter) })
	if all, err := h.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List: got %d, %v, want none", len(all), err)
	}
	if removed, err := h.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("Prune: got %+v, %v, want none", removed, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: busyboxImage, Key: t.Name()}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("Create with a squatted name: got %v, want ErrConflict", err)
	}
	for _, id := range []string{spoofed, squatter} {
		dockerCLI(t, "inspect", id)
	}
}

// TestDockerRoot has commands that run as root: they may do to the sandbox what
// people expect of root, and to its server what SECURITY.md says; the host stays
// as far away as for anybody.
func TestDockerRoot(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	mounted := t.TempDir()
	if err := errors.Join(os.Chown(mounted, 1000, 1000), os.Chmod(mounted, 0o700)); err != nil {
		t.Skipf("needs root: %v", err)
	}
	s := create(t, h, sandbox.Spec{Image: image(t, debianImage), User: "root", Mounts: []sandbox.Mount{{Source: mounted, Target: "/data"}}})
	const server = `S=$(for p in /proc/[0-9]*; do read -r n < $p/comm; test "$n" = server && echo ${p#/proc/}; done); `
	for _, tt := range []struct {
		name, command string
		want          string // part of the output
	}{
		{"who", "id -u", "0"},
		{"write in a directory of another", "mkdir /data/x && chown 1000:1000 /data/x && chmod 700 /data/x && touch /data/x/y && echo written", "written"},
		{"change the mode of another's file", "chown 1000 /data/x/y && chmod 755 /data/x/y && echo changed", "changed"},
		{"no new privileges", `grep NoNewPrivs /proc/self/status`, "1"},
		{"mount", `mount -t tmpfs none /mnt; echo $?`, "denied"},
		{"make a device", `mknod /tmp/sda b 8 0; echo $?`, "not permitted"},
		{"trace the kernel", `dmesg`, "not permitted"},
		{"the clock", `date -s 2001-01-01; echo $?`, "not permitted"},
		{"the server's file", `echo x > /.actiond/server`, "Read-only file system"},
		{"the host's sysctls", `echo 1 > /proc/sys/kernel/panic`, "Read-only file system"},
		{"read the server's memory", server + `head -c 4 /proc/$S/exe | tail -c 3; grep -c . /proc/$S/maps >/dev/null && echo read`, "read"},
		{"reach the socket", `ls /run/actiond`, "sock"},
	} {
		if got, _ := run(t, s, tt.command); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s:\ngot  %q\nwant %q in it", tt.name, tt.command, got, tt.want)
		}
	}
}
