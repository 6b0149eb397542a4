//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// cliProgram is the path of a runtimectl built from this checkout.
var cliProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "actiond-cli-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/runtimectl", "../cmd/runtimectl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building runtimectl: %w\n%s", err, out)
	}
	if cliFile, err = os.Open(dir + "/runtimectl"); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), cliFile.Fd()), nil
})

var cliFile *os.File // keeps the binary alive

// cli runs runtimectl on a state directory of its own; what it left is an error.
type cli struct {
	t        *testing.T
	program  string
	server   string
	stateDir string
}

func newCLI(t *testing.T) cli {
	t.Helper()
	program, err := cliProgram()
	if err != nil {
		t.Fatal(err)
	}
	server, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	c := cli{t, program, server, t.TempDir()}
	t.Cleanup(func() {
		if left := strings.Fields(c.ok("ls", "-q")); len(left) > 0 {
			c.ok(append([]string{"rm"}, left...)...)
		}
	})
	return c
}

// run runs a command line and gives its exit code, standard output and standard
// error.
func (c cli) run(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	return c.runWith(nil, args...)
}

// runWith is run with this on standard input.
func (c cli) runWith(stdin []byte, args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	line := []string{args[0], "--state-dir", c.stateDir}
	switch args[0] {
	case "run", "create", "start":
		line = append(line, "--server", c.server)
	}
	cmd := exec.Command(c.program, append(line, args[1:]...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (c cli) ok(args ...string) string {
	c.t.Helper()
	code, stdout, stderr := c.run(args...)
	if code != 0 {
		c.t.Errorf("runtimectl %q: exit code %d: %s", args, code, stderr)
	}
	return stdout
}

// TestCLI does what a reader of the README does.
func TestCLI(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	box := image(t, busyboxImage)
	code, stdout, stderr := c.run("run", box, "--", "sh", "-c", "id -un; exit 3")
	if code != 3 || stdout != "agent\n" || stderr != "" {
		t.Errorf("run: exit code %d, %q, %q, want 3, agent, nothing", code, stdout, stderr)
	}
	if left := c.ok("ls", "-q"); left != "" {
		t.Errorf("run left %s", left)
	}
	id := strings.TrimSpace(c.ok("create", "--name", "build", "--memory", "256m", "--network", "none", "--label", "a=b", "-e", "SECRET=s3cr3t", box))
	if again := strings.TrimSpace(c.ok("create", "--key", "k", box)); again != strings.TrimSpace(c.ok("create", "--key", "k", box)) {
		t.Error("two creations with a key gave two sandboxes")
	}
	if code, _, _ := c.run("create", "--key", "k", "--memory", "300m", box); code != 5 {
		t.Errorf("another specification with the same key: exit code %d, want 5", code)
	}
	if got := c.ok("exec", "build", "--", "sh", "-c", "cd /; pwd; id -u; echo $SECRET"); !regexp.MustCompile(`^/\n[45][0-9]{4}\ns3cr3t\n$`).MatchString(got) {
		t.Errorf("exec: got %q", got)
	}
	if code, _, _ := c.run("exec", id[:6], "--", "no-such-program"); code != 127 {
		t.Errorf("exec of nothing: exit code %d, want 127", code)
	}
	var details []struct {
		ID     string   `json:"id"`
		Memory int64    `json:"memory_limit"`
		Gained []string `json:"gained_protection"`
		State  string   `json:"state"`
	}
	if err := json.Unmarshal([]byte(c.ok("inspect", "-o", "json", "build")), &details); err != nil || len(details) != 1 ||
		details[0].ID != id || details[0].Memory != 256<<20 || len(details[0].Gained) != 1 || details[0].State != "idle" {
		t.Errorf("inspect: got %+v, %v", details, err)
	}
	if got := c.ok("stats", "-o", "json", "build"); !strings.Contains(got, `"memory_limit": 268435456`) {
		t.Errorf("stats: %s", got)
	}
	// An account of the image keeps its id.
	c.ok("create", "--name", "image-account", "--user", "nobody", box)
	if got := c.ok("inspect", "-o", "json", "image-account"); !strings.Contains(got, `"user": "nobody:`+strings.TrimSpace(c.ok("exec", "image-account", "id", "-u"))+`"`) {
		t.Errorf("inspect: got %s, want the id of nobody in the image", got)
	}
	c.ok("pause", "build")
	if code, _, stderr := c.run("exec", "build", "true"); code != 125 || !strings.Contains(stderr, "resume it with") {
		t.Errorf("exec in a paused one: exit code %d, %s", code, stderr)
	}
	c.ok("resume", "build")
	c.ok("renew", "--ttl", "1h", "build")
	c.ok("stop", "build")
	if code, stdout, stderr := c.run("stats", "build"); code != 5 || stdout != "" || !strings.Contains(stderr, " is stopped; start it with") {
		t.Errorf("stats of a stopped one: exit code %d, %q, %q", code, stdout, stderr)
	}
	c.ok("start", "build")
	if got := c.ok("rm", "build"); got != id+"\n" {
		t.Errorf("rm: got %q", got)
	}
	if code, _, _ := c.run("inspect", "build"); code != 3 {
		t.Errorf("inspect of what is gone: exit code %d, want 3", code)
	}
}

// TestCLICopy copies both ways, and keeps what a hostile sandbox does with links
// inside.
func TestCLICopy(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("create", "--name", "copy", image(t, busyboxImage))
	here := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(here+"/src/d", 0o755), os.WriteFile(here+"/src/d/f", []byte("text"), 0o640), os.Symlink("d/f", here+"/src/l"),
	); err != nil {
		t.Fatal(err)
	}
	c.ok("cp", here+"/src", "copy:")
	if got := c.ok("exec", "copy", "sh", "-c", "stat -c '%n %U %a' src src/d/f; cat src/l; echo more >src/d/f"); got != "src agent 755\nsrc/d/f agent 640\ntext" && got != "src agent 755\nsrc/d/f agent 640\ntext\n" {
		t.Errorf("copied in: %q", got)
	}
	c.ok("cp", "copy:src", here+"/out")
	if got, err := os.ReadFile(here + "/out/l"); err != nil || string(got) != "more\n" {
		t.Errorf("copied out: %q, %v", got, err)
	}
	if got := c.ok("cat", "copy", "src/d/f"); got != "more\n" {
		t.Errorf("cat: %q", got)
	}

	sentinel := filepath.Join(here, "sentinel")
	testhelp.WriteFile(t, sentinel, "mine", 0o600)
	c.ok("exec", "copy", "sh", "-c", "mkdir evil; ln -s "+sentinel+" evil/abs; ln -s ../sentinel evil/rel; ln -s .. evil/up; mkfifo evil/pipe; echo x >evil/fine; chmod 6755 evil/fine")
	code, _, stderr := c.run("cp", "copy:evil", here)
	if code != 0 || strings.Count(stderr, "note: left out: ") != 4 {
		t.Errorf("exit code %d, %s\nwant 0, and four things left out", code, stderr)
	}
	entries, err := os.ReadDir(here + "/evil")
	if err != nil || len(entries) != 1 || entries[0].Name() != "fine" {
		t.Errorf("copied: %v, %v, want the file alone", entries, err)
	}
	if info, err := os.Stat(here + "/evil/fine"); err != nil || info.Mode() != 0o755 {
		t.Errorf("the set-uid file: %v, %v", info.Mode(), err)
	}
	if data, err := os.ReadFile(sentinel); err != nil || string(data) != "mine" {
		t.Errorf("the file outside holds %q, %v", data, err)
	}
}

// TestCLILong has calls that take longer than the 15 s within which an answer that has
// begun must be whole: the answers that the engine gives meanwhile are no part of it.
func TestCLILong(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("create", "--name", "long", image(t, busyboxImage))
	t.Run("act", func(t *testing.T) {
		t.Parallel()
		c := cli{t, c.program, c.server, c.stateDir}
		if got := c.ok("act", "long", `{"action": "run", "args": {"command": "sleep 20; echo done", "blocking": true}}`); !strings.Contains(got, `"done`) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("cp", func(t *testing.T) {
		t.Parallel()
		script := `cd "$1" && echo text >f && tar -cf a.tar f && { head -c 512 a.tar; sleep 20; tail -c +513 a.tar; } | "$2" cp --state-dir "$3" - long:`
		out, err := exec.Command("sh", "-ec", script, "sh", t.TempDir(), c.program, c.stateDir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		c := cli{t, c.program, c.server, c.stateDir}
		if got := c.ok("cat", "long", "f"); got != "text\n" {
			t.Errorf("copied: %q", got)
		}
	})
}

// TestCLICopyThroughLink has an agent that puts links where a user copies to, to
// become root: what is written there is written with its own rights, or not at all.
func TestCLICopyThroughLink(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	id := strings.TrimSpace(c.ok("create", "--name", "link", image(t, busyboxImage)))
	here := t.TempDir()
	const evil = "root::0:0::/:/bin/sh\nagent::0:0::/:/bin/sh\n"
	if err := errors.Join(os.Mkdir(here+"/d", 0o755), os.WriteFile(here+"/d/passwd", []byte(evil), 0o644)); err != nil {
		t.Fatal(err)
	}
	tarball, err := exec.Command("tar", "-C", here, "-c", "d/passwd").Output()
	if err != nil {
		t.Fatal(err)
	}
	before := c.ok("cat", "link", "/etc/passwd")
	c.ok("exec", "link", "sh", "-c", "ln -s /etc/passwd file; ln -s /etc dir; ln -s / root; ln -s /etc d; mkdir sub; ln -s /etc sub/d; ln -s ../../etc/passwd sub/passwd")
	attack := func(when, want string, codes ...int) {
		t.Helper()
		for _, args := range [][]string{
			{here + "/d/passwd", "link:file"},
			{here + "/d/passwd", "link:dir"},
			{here + "/d/passwd", "link:dir/passwd"},
			{here + "/d/.", "link:dir"},
			{here + "/d", "link:sub"},
			{here + "/d/passwd", "link:root/etc/passwd"},
			{here + "/d/passwd", "link:root/etc"},
			{"-", "link:."},
			{"-", "link:sub"},
		} {
			code, stdout, stderr := c.runWith(tarball, append([]string{"cp"}, args...)...)
			if !slices.Contains(codes, code) || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%s, cp %q: exit code %d, %s", when, args, code, stderr)
			}
		}
		cmd := exec.Command(c.program, "edit", "--state-dir", c.stateDir, "link", "file")
		cmd.Env = append(os.Environ(), "EDITOR=sed -i s/1000/0/")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s, edit: %s", when, out)
		}
		if got := c.ok("cat", "link", "/etc/passwd"); got != before {
			t.Errorf("%s: /etc/passwd is %q now", when, got)
		}
	}
	attack("running", "runtimectl: ", 1, 5)
	c.ok("stop", "link")
	attack("stopped", "start it with 'runtimectl start "+id+"'", 5)
	c.ok("start", "link")
	c.ok("pause", "link")
	attack("paused", "resume it with 'runtimectl resume "+id+"'", 5)
}

// TestCLICopyOutHostile copies what an agent makes to hurt a controller.
func TestCLICopyOutHostile(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("create", "--name", "out", image(t, debianImage))
	c.ok("exec", "out", "bash", "-c", `mkdir names deep sparse huge links
		printf x >$'names/\xff\xfe'; mkdir $'names/d\xc3('; printf y >$'names/d\xc3(/\x80'; printf z >$'names/a\nb'
		perl -e 'chdir "deep"; for (1..300) { mkdir "d"; chdir "d" or die } open F, ">f"; print F "bottom\n"' # internal/archive tests 2,000
		truncate -s 64M sparse/f; printf end >>sparse/f
		truncate -s 3T huge/f
		echo one >links/a; ln links/a links/b; ln -s a links/c; mkfifo links/pipe; chmod 6755 links/a`)
	here := t.TempDir()
	for _, dir := range []string{"names", "deep", "sparse", "links"} {
		if code, _, stderr := c.run("cp", "out:"+dir, here+"/"+dir); code != 0 {
			t.Errorf("cp %s: exit code %d: %s", dir, code, stderr)
		}
	}
	for name, want := range map[string]string{"names/\xff\xfe": "x", "names/d\xc3(/\x80": "y", "names/a\nb": "z", "links/b": "one\n", "links/c": "one\n"} {
		if got, err := os.ReadFile(here + "/" + name); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
	bottom, err := os.OpenRoot(here + "/deep")
	for range 300 {
		if err != nil {
			t.Fatal(err)
		}
		above := bottom
		bottom, err = above.OpenRoot("d")
		above.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bottom.ReadFile("f"); err != nil || string(got) != "bottom\n" {
		t.Errorf("at the bottom: got %q, %v", got, err)
	}
	bottom.Close()
	info, err := os.Stat(here + "/sparse/f")
	if err != nil || info.Size() != 64<<20+3 || info.Sys().(*syscall.Stat_t).Blocks > 2048 {
		t.Errorf("the file with a hole: %+v, %v", info, err)
	}
	if info, err := os.Stat(here + "/links/a"); err != nil || info.Mode() != 0o755 {
		t.Errorf("the set-uid file: %v, %v", info.Mode(), err)
	}
	code, _, stderr := c.run("cp", "out:huge", here+"/huge")
	if code != 1 || !strings.Contains(stderr, "there is not enough space") {
		t.Errorf("the file of 3 TB: exit code %d, %s", code, stderr)
	}
	if entries, err := os.ReadDir(here + "/huge"); err != nil || len(entries) != 0 {
		t.Errorf("of the file of 3 TB there is %v, %v", entries, err)
	}
}

// TestCLIPool claims from a pool that another process keeps.
func TestCLIPool(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	box := image(t, busyboxImage)
	keeper := exec.Command(c.program, "pool", "--state-dir", c.stateDir, "--server", c.server, "--warm", "1", "--pool", "p", box)
	var said bytes.Buffer
	keeper.Stderr = &said
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	waiting := func() (id string) {
		var list []struct{ ID, Pool, State string }
		if err := json.Unmarshal([]byte(c.ok("ls", "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Pool == "p" && s.State == "ready" {
				id = s.ID
			}
		}
		return id
	}
	warm := ""
	testhelp.Eventually(t, func() bool { warm = waiting(); return warm != "" }, "a sandbox is warm")
	if _, _, stderr := c.run("create", "--pool", "p", "--name", "taken", "-e", "A=b", box); stderr != "" {
		t.Errorf("from the pool: said %q", stderr)
	}
	if got := c.ok("exec", "taken", "sh", "-c", "echo $A"); got != "b\n" {
		t.Errorf("the claimed one has the variable %q, want b", got)
	}
	testhelp.Eventually(t, func() bool { id := waiting(); return id != "" && id != warm }, "another one takes its place")
	if err := keeper.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Wait(); err != nil {
		t.Errorf("the pool ends with %v: %s", err, said.String())
	}
	if left := strings.Fields(c.ok("ls", "-q")); len(left) != 1 {
		t.Errorf("left: %q, want the claimed one alone", left)
	}
	code, _, stderr := c.run("create", "--pool", "p", box)
	if code != 0 || stderr != "note: none of these flags waits in pool p: this one was made\n" {
		t.Errorf("from an empty pool: exit code %d, %q", code, stderr)
	}
}

// TestCLIDemo plays the demo in a container, and its requests over the network in another one.
func TestCLIDemo(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	t.Cleanup(func() {
		for _, id := range egressProxies(t, c.stateDir) {
			dockerCLI(t, "rm", "-f", id)
		}
	})
	box := image(t, debianImage)
	code, stdout, stderr := c.run("demo", "--server", c.server, "--image", box)
	// The image has neither Python nor Go, and the demo needs neither.
	if code != 0 || !strings.Contains(stdout, ", a container of "+box+".\n") || !strings.Contains(stdout, "\n22 steps: 22 ok, 0 failed, 0 skipped;") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		`| {"status":"ok"}`, "| Blocked by this sandbox's network policy: evil.example:80 (not in the allow list).",
		"| [network] blocked by policy: evil.example:80 (not in the allow list)\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in %s", want, stdout)
		}
	}
	if !strings.Contains(stderr, "note: the egress proxy stays") {
		t.Errorf("the proxy is not mentioned: %s", stderr)
	}
	if left := c.ok("ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
}
