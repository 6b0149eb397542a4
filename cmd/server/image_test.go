package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// needMounts skips a test where a namespace of mounts cannot be had.
func needMounts(t *testing.T) {
	t.Helper()
	var root unix.Statx_t
	switch err := unix.Statx(unix.AT_FDCWD, "/", 0, 0, &root); {
	case os.Geteuid() != 0:
		t.Skip("only root can mount")
	case err == nil && root.Attributes_mask&^root.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		t.Skip("in a chroot whose root directory is no mount, a namespace of mounts cannot be made private")
	}
}

// leave starts the server there.
const leave = `
exec chroot "$1" /server --addr unix:/run/s --working-dir /workspace --username agent --user-id 1000
`

// A file that an image lacks, or that may not be changed, keeps no command from running.
func TestImages(t *testing.T) {
	t.Parallel()
	needMounts(t)
	binary := buildServer(t)
	const accounts = "mkdir $1/etc; echo root:x:0:0::/root:/bin/sh >$1/etc/passwd; echo root:x:0: >$1/etc/group\n"
	const theirs = "mkdir $1/theirs; echo x >$1/theirs/x; chown -R 1234:0 $1/theirs; mount --bind $1/theirs $1/workspace\n"
	const theirHome = "mkdir -p $1/etc/skel $1/theirs $1/home/agent; touch $1/etc/skel/.profile $1/theirs/x; chown -R 1234:0 $1/theirs\n"
	const theirProject = "mkdir -p $1/theirs/project; touch $1/theirs/project/x; chown -R 1234 $1/theirs/project\n"
	leaveBelow := strings.Replace(leave, "/workspace", "/workspace/project", 1)
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
			"mounted workspace", theirs,
			whoAndWhere + "; stat -c %u /workspace/x", "1234 0 /home/agent\n/home/agent\nwritten\n1234",
		},
		{
			"mounted workspace and accounts", accounts + "echo sudo:x:27: >>$1/etc/group; echo >$1/etc/sudoers\n" + theirs,
			whoAndWhere + "; id -un; id -Gn; cat /etc/sudoers; stat -c '%u %U' /workspace/x",
			"1234 0 /home/agent\n/home/agent\nwritten\nagent\nroot sudo\n\n%sudo ALL=(ALL) NOPASSWD:ALL\n1234 agent",
		},
		{
			"mounted workspace and an account of another id", accounts + `echo agent:x:1000:50::/home/agent:/bin/sh >>$1/etc/passwd; echo staff:x:50: >>$1/etc/group
				mkdir -p $1/home/agent/d; echo x >$1/home/agent/d/f; chmod -R go-rwx $1/home/agent; chown -R 1000:50 $1/home/agent
			` + theirs,
			whoAndWhere + "; id -un; cat ~/d/f; stat -c '%u %U' /workspace/x; grep -c agent /etc/passwd",
			"1234 50 /home/agent\n/home/agent\nwritten\nagent\nx\n1234 agent\n1",
		},
		{
			"mounted workspace whose owner has another name", accounts + "echo node:x:1234:1234::/home/node:/bin/sh >>$1/etc/passwd\n" + theirs,
			"id -un; id -u node; stat -c %U /workspace/x; head -n 1 /etc/passwd", "agent\n1234\nagent\nroot:x:0:0::/root:/bin/sh",
		},
		{
			"mounted workspace and a home of others", accounts + "echo agent:x:1000:0::/:/bin/sh >>$1/etc/passwd\n" + theirs,
			"id -un; stat -c %u / /bin; cd; pwd", "agent\n0\n0\n/",
		},
		{
			"mounted workspace and accounts that cannot be changed", accounts + "mkdir $1/home; " + theirs + "for d in tmp home; do mount -t tmpfs tmpfs $1/$d; done\n" + readOnly,
			whoAndWhere + "; id -un 2>/dev/null", "1234 0 /home/agent\n/home/agent\nwritten\n1234",
		},
		{
			"mounted workspace of a very large id", accounts + "mkdir $1/theirs; chown 4294967294 $1/theirs; mount --bind $1/theirs $1/workspace\n",
			"id -un; id -u", "agent\n4294967294",
		},
		{
			"an id that has another name", accounts + "echo node:x:1000:1000::/home/node:/bin/sh >>$1/etc/passwd\n",
			"id -un; id -u; id -u node; stat -c %U /workspace", "agent\n1000\n1000\nagent",
		},
		{
			"mounted workspace of root", "mkdir $1/theirs; mount --bind $1/theirs $1/workspace\n",
			whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten",
		},
		{
			"below a mount of root, of another user", theirProject + "mount --bind $1/theirs $1/workspace\n" + leaveBelow,
			"id -u; stat -c %u . x .. && touch x", "1234\n1234\n1234\n0",
		},
		{
			"below a mount of another user, of root", theirProject + "chown -R 0 $1/theirs/project; chown 1234 $1/theirs; mount --bind $1/theirs $1/workspace\n" + leaveBelow,
			"id -u; stat -c %u . x", "1234\n0\n0",
		},
		{
			"below a mount of another user, new", "mkdir $1/theirs; chown 1234 $1/theirs; mount --bind $1/theirs $1/workspace\n" + leaveBelow,
			"id -u; pwd; stat -c %u . ..", "1234\n/workspace/project\n1234\n1234",
		},
		{
			"home below a mount", accounts + theirHome + "mkdir -p $1/home $1/homes/agent; chown 1234 $1/homes/agent; mount --bind $1/homes $1/home\n",
			"id -u; stat -c %u ~", "1000\n1234",
		},
		{
			"home below a mount, new", accounts + "mkdir -p $1/homes $1/home; chown 1234 $1/homes; mount --bind $1/homes $1/home\n",
			"id -u; stat -c %u ~", "1000\n1000",
		},
		{
			"mounted home of another user", accounts + theirHome + "mount --bind $1/theirs $1/home/agent\n",
			"id -un; stat -c '%u %n' ~ ~/x; ls -A ~", "agent\n1234 /home/agent\n1234 /home/agent/x\nx",
		},
		{
			"mounted home that is read-only",
			accounts + theirHome + "chown 0:0 $1/theirs; mount --bind $1/theirs $1/home/agent; mount -o remount,bind,ro $1/home/agent\n",
			"id -un; ls -A ~", "agent\nx",
		},
		{
			"mounted home of an account of another id",
			accounts + "echo agent:x:1234:0::/home/agent:/bin/sh >>$1/etc/passwd\n" + theirHome +
				"mount --bind $1/theirs $1/home/agent; mkdir $1/more; chown 4321 $1/more; mount --bind $1/more $1/workspace\n",
			"id -u; stat -c '%u %n' ~ ~/x; ls -A ~", "4321\n1234 /home/agent\n1234 /home/agent/x\nx",
		},
		{
			"mounted home of root", accounts + "mkdir -p $1/theirs $1/home/agent; mount --bind $1/theirs $1/home/agent\n",
			whoAndWhere, "1000 0 /home/agent\n/home/agent\nwritten",
		},
		{
			"a home link that leads nowhere", accounts + "ln -s var/home $1/home\n",
			whoAndWhere + "; readlink -f ~", "1000 0 /home/agent\n/home/agent\nwritten\n/var/home/agent",
		},
		{
			"a home that is a file", accounts + "echo >$1/home\n",
			whoAndWhere, "1000 0 /tmp\n/tmp\nwritten",
		},
		{
			"a workspace link that leads nowhere", "rmdir $1/workspace; ln -s /data/ws $1/workspace\n",
			whoAndWhere + "; cd /workspace; pwd -P; stat -c %u .", "1000 0 /home/agent\n/home/agent\nwritten\n/data/ws\n1000",
		},
		{
			"a link above the working directory that leads nowhere", "ln -s data/no $1/srv; mkdir $1/data\n" +
				strings.Replace(leave, "/workspace", "/srv/app", 1),
			"pwd; stat -c %u . ..", "/data/no/app\n1000\n0",
		},
		{
			"a working directory that is the agent's file", accounts + "mkdir -p $1/home/agent; echo x >$1/home/agent/w; chown -R 1000 $1/home/agent\n" +
				strings.Replace(leave, "/workspace", "/home/agent/w", 1),
			"pwd; cat w; id -un", "/home/agent\nx\nagent",
		},
		{
			"a working directory that is the agent's link to nothing", "mkdir -p $1/home/agent $1/etc; ln -s /etc/new $1/home/agent/w; chown -R -h 1000 $1/home/agent\n" +
				strings.Replace(leave, "/workspace", "/home/agent/w", 1),
			"pwd; ls /etc; readlink w", "/home/agent\n/etc/new",
		},
		{
			"a working directory below the agent's link to root's", "mkdir -p $1/home/agent $1/etc; ln -s /etc $1/home/agent/w; chown -R -h 1000 $1/home/agent\n" +
				strings.Replace(leave, "/workspace", "/home/agent/w/new", 1),
			"pwd; ls /etc", "/home/agent",
		},
		{
			"a working directory that is a circle", "ln -s loop $1/loop\n" + strings.Replace(leave, "/workspace", "/loop", 1),
			"pwd", "/home/agent",
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

// TestRootByAnotherName starts no server whose commands would run as root under
// another name: an agent that once wrote /etc/passwd would be root after the
// next start.
func TestRootByAnotherName(t *testing.T) {
	t.Parallel()
	needMounts(t)
	binary := buildServer(t)
	const accounts = `mkdir $1/etc; echo root:x:0:0::/root:/bin/sh >$1/etc/passwd; echo root:x:0: >$1/etc/group
	`
	for _, c := range []struct{ name, setUp, args, want string }{
		{"an account with root's id", accounts + "echo toor:x:0:0::/root:/bin/sh >>$1/etc/passwd\n", "--username toor", "has the user id of root"},
		{"the agent's account changed", accounts + "echo agent:x:0000:0::/:/bin/sh >>$1/etc/passwd\n", "--username agent --user-id 1000", "has the user id of root"},
		{"a new account with id 0", accounts, "--username agent --user-id 0", "has the user id of root"},
		{"a new account with id 0, no accounts", "", "--username agent --user-id 0", "has the user id of root"},
		{"root's number", accounts, "--username 0", "is a number"},
		{"root's number with zeros", accounts, "--username 000", "is a number"},
		{"root's number with a sign", accounts, "--username +0", "is a number"},
		{"another number", accounts, "--username 1000", "is a number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, run := makeImage(t, binary)
			script := enter + c.setUp + `exec chroot "$1" /server --addr unix:/run/s --working-dir /workspace ` + c.args
			server := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, "-", root, run)
			server.Env = []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin"}
			server.WaitDelay = time.Minute // a busy machine reads the output late, and what is not read by then is lost
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			context.AfterFunc(ctx, func() { _ = server.Process.Kill() })
			out, err := server.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() < 1 || !strings.Contains(string(out), c.want) {
				t.Errorf("got %v, %s\nwant a refusal with %q", err, out, c.want)
			}
		})
	}
}

// inImage starts the server in a root directory with a shell and nothing else,
// changed by the lines of setUp.
func inImage(t *testing.T, binary, setUp string) func(api.Request) (api.Observation, error) {
	t.Helper()
	root, run := makeImage(t, binary)
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

// makeImage makes a root directory with the server and BusyBox, and a directory
// that is shared with the test.
func makeImage(t *testing.T, binary string) (root, run string) {
	t.Helper()
	// Not the test's own directory, whose path may be too long for a socket.
	dir, err := os.MkdirTemp("", "actiond-image-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root, run = filepath.Join(dir, "root"), filepath.Join(dir, "run")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(run, 0o700))
	for _, d := range []string{"", "bin", "dev", "proc", "run", "tmp", "workspace"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	err = errors.Join(err, os.Chmod(filepath.Join(root, "tmp"), 0o1777|os.ModeSticky),
		os.Link(binary, filepath.Join(root, "server")))
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	if program, err := elf.Open(busybox); err != nil {
		t.Fatal(err)
	} else if libraries, _ := program.ImportedLibraries(); len(libraries) > 0 {
		t.Skipf("%s needs libraries, which are not in the image: install busybox-static", busybox)
	}
	put := exec.CommandContext(t.Context(), "sh", "-c", `cp "$(command -v busybox)" "$1/bin/busybox" && "$1/bin/busybox" --install -s "$1/bin" && ln -sf busybox "$1/bin/sh"`, "-", root)
	if out, err := put.CombinedOutput(); err != nil {
		t.Fatalf("putting BusyBox there: %v\n%s", err, out)
	}
	return root, run
}

// buildServer builds the server, as make build does, and returns its path.
func buildServer(t *testing.T) string {
	t.Helper()
	dir, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "server")
}

// built is the directory of the server, for TestMain to remove, "" where no test wanted it.
var built string

// It is built once, for all tests.
var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "server-test-")
	if err != nil {
		return "", err
	}
	built = dir
	if err := os.Chmod(dir, 0o755); err != nil { // other users start it
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return dir, nil
})
