package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// enter makes a directory the root of what follows, in a name space whose mounts
// end with it. $1 is the directory, $2 one that is shared with the test.
const enter = `set -eu
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount --bind "$2" "$1/run"
`

// leave starts the server there.
const leave = `
exec chroot "$1" /server --addr unix:/run/s --working-dir /workspace --username agent --user-id 1000
`

// What an image lacks, or may not be changed, keeps no command from running.
func TestImages(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	binary := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	const accounts = "mkdir $1/etc; echo root:x:0:0::/root:/bin/sh >$1/etc/passwd; echo root:x:0: >$1/etc/group\n"
	const readOnly = "mount -o remount,bind,ro $1\n"
	const whoAndWhere = `echo $(id -u) $(id -g) $HOME; cd "$HOME" && pwd; touch "$HOME/f" /workspace/f && echo written`
	for _, c := range []struct{ name, setUp, command, want string }{
		{"no accounts", "", whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten"},
		{"accounts", accounts, whoAndWhere + "; id -un", "1000 0 /home/agent\n/home/agent\nwritten\nagent"},
		{"no groups", accounts + "rm $1/etc/group\n", whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten"},
		{
			"read-only", accounts + "mkdir $1/home; for d in tmp home workspace; do mount -t tmpfs tmpfs $1/$d; done\n" + readOnly,
			whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten",
		},
		{
			"read-only without homes", accounts + "for d in tmp workspace; do mount -t tmpfs -o mode=1777 tmpfs $1/$d; done\n" + readOnly,
			whoAndWhere, "1000 0 /tmp\n/tmp\nwritten",
		},
		{
			"mounted workspace", "mkdir $1/theirs; echo x >$1/theirs/x; chown -R 1234:0 $1/theirs; mount --bind $1/theirs $1/workspace\n",
			whoAndWhere + "; stat -c %u /workspace/x", "1234 0 /home/agent\n/home/agent\nwritten\n1234",
		},
		{
			"mounted workspace of root", "mkdir $1/theirs; mount --bind $1/theirs $1/workspace\n",
			whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten",
		},
		{
			"mounts inside", `mkdir "$1/workspace/the irs" $1/theirs; touch $1/theirs/x $1/workspace/mine $1/workspace/file
				mount --bind $1/theirs "$1/workspace/the irs"; mount --bind $1/theirs/x $1/workspace/file
			`,
			`stat -c '%u %n' . mine file 'the irs' 'the irs/x'`, "1000 .\n1000 mine\n0 file\n0 the irs\n0 the irs/x",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do := inImage(t, binary, c.setUp)
			o, err := do(api.Request{Action: api.RunAction{Command: c.command, Blocking: true}})
			if err != nil {
				t.Fatal(err)
			}
			if got := o.(api.RunObservation).Content; got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// inImage starts the server in a root directory with a shell and nothing else,
// changed by the lines of setUp.
func inImage(t *testing.T, binary, setUp string) func(api.Request) (api.Observation, error) {
	t.Helper()
	// Not the test's own directory, whose path may be too long for a socket.
	dir, err := os.MkdirTemp("", "actiond-image-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root, run := filepath.Join(dir, "root"), filepath.Join(dir, "run")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(run, 0o700))
	for _, d := range []string{"", "bin", "dev", "proc", "run", "tmp", "workspace"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	err = errors.Join(err, os.Chmod(filepath.Join(root, "tmp"), 0o1777|os.ModeSticky),
		os.Link(binary, filepath.Join(root, "server")))
	if err != nil {
		t.Fatal(err)
	}
	put := exec.CommandContext(t.Context(), "sh", "-c", `cp "$(command -v busybox)" "$1/bin/busybox" && "$1/bin/busybox" --install -s "$1/bin" && ln -sf busybox "$1/bin/sh"`, "-", root)
	if out, err := put.CombinedOutput(); err != nil {
		t.Fatalf("putting BusyBox there: %v\n%s", err, out)
	}

	server := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--mount", "sh", "-c", enter+setUp+leave, "-", root, run)
	server.Env = []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin"}
	server.Stderr = t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- server.Wait() }()
	c, err := client.New(client.Config{BaseURL: "unix://" + filepath.Join(run, "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := <-over; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for c.Alive(t.Context()) != nil {
		select {
		case err := <-over:
			over <- nil
			t.Fatalf("the server did not come up: %v", err)
		case <-look.C:
		}
	}
	return func(r api.Request) (api.Observation, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return c.Do(ctx, r)
	}
}
