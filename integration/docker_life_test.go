//go:build integration

package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

func TestDockerImages(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	t.Run("busybox", func(t *testing.T) {
		t.Parallel()
		s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
		if got, code := run(t, s, "id -un"); got != "agent" || code != 0 {
			t.Errorf("got %q, exit code %d, want agent", got, code)
		}
	})
	t.Run("of our Dockerfile", func(t *testing.T) {
		t.Parallel()
		s := create(t, h, sandbox.Spec{Image: image(t, fullImage)})
		for command, want := range map[string]string{
			"python3 -c 'print(6*7)'":                                      "42",
			"python3 -c 'import ipykernel; print(\"kernel\")'":             "kernel",
			"git init -q r && cd r && git status -s && cd .. && echo fine": "fine",
			"echo needle > f && rg -c needle f":                            "1",
			"id -un; stat -c %U /workspace; pwd":                           "agent\nagent\n/workspace",
			"sudo -n true || echo refused":                                 "refused",
		} {
			if got, _ := run(t, s, command); !strings.HasSuffix(got, want) {
				t.Errorf("%s: got %q, want %q", command, got, want)
			}
		}
	})
	t.Run("scratch", func(t *testing.T) {
		t.Parallel()
		_, err := h.Create(t.Context(), sandbox.Spec{Image: image(t, scratchImage)})
		var start *sandbox.StartError
		if !errors.As(err, &start) || !strings.Contains(start.Hint, "no shell") || start.Logs == "" {
			t.Errorf("got %v, want a StartError that says that there is no shell, with the last log lines", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		for _, pull := range []sandbox.Pull{sandbox.PullNever, sandbox.PullMissing} {
			_, err := h.Create(t.Context(), sandbox.Spec{Image: "127.0.0.1:1/not/there:1", Pull: pull})
			if !errors.Is(err, sandbox.ErrNoImage) {
				t.Errorf("pull %s: got %v, want ErrNoImage", pull, err)
			}
		}
	})
	t.Run("copied server", func(t *testing.T) {
		t.Parallel()
		h := testHost(t, func(c *docker.Config) { c.CopyServer = true })
		s := create(t, h, sandbox.Spec{Image: busyboxImage})
		if got, _ := run(t, s, "echo $((6*7))"); got != "42" {
			t.Errorf("got %q, want 42", got)
		}
	})
	t.Run("port", func(t *testing.T) {
		t.Parallel()
		h := testHost(t, func(c *docker.Config) { c.Transport = "port" })
		s := create(t, h, sandbox.Spec{Image: busyboxImage})
		if got, _ := run(t, s, "echo $((6*7))"); got != "42" {
			t.Errorf("got %q, want 42", got)
		}
		if got := dockerCLI(t, "port", s.Instance); !strings.Contains(got, "127.0.0.1:") || strings.Contains(got, "0.0.0.0") {
			t.Errorf("published on %q, want the loopback only", got)
		}
		if _, err := runIn(t.Context(), s.Dial, "", "true"); err == nil {
			t.Error("the port answers without a key")
		}
		if err := errors.Join(h.Stop(t.Context(), s, 2*time.Second), h.Start(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
		if got, _ := run(t, s, "echo again"); got != "again" {
			t.Errorf("after stop and start: got %q", got)
		}
	})
	t.Run("read-only without a network", func(t *testing.T) {
		t.Parallel()
		s := create(t, h, sandbox.Spec{Image: busyboxImage, User: "nobody", Network: "none", ReadOnly: true})
		for command, want := range map[string]string{
			"touch /x || echo no":                   "no",
			"touch /workspace/x /tmp/x && echo yes": "yes",
			"ls /sys/class/net":                     "lo",
		} {
			if got, _ := run(t, s, command); !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q in it", command, got, want)
			}
		}
	})
	t.Run("mount owner", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, 1234, 1234)); err != nil {
			t.Fatal(err)
		}
		s := create(t, h, sandbox.Spec{Image: busyboxImage, Mounts: []sandbox.Mount{{Source: dir, Target: "/workspace"}}})
		if got, _ := run(t, s, "id -u; id -un; touch x; stat -c '%u %U' x"); got != "1234\nagent\n1234 agent" {
			t.Errorf("got %q, want the id of the mount's owner, called agent", got)
		}
	})
}

func TestDockerLife(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	spec := sandbox.Spec{Image: image(t, debianImage), Key: t.Name(), Name: "life", Owner: "somebody"}
	s := create(t, h, spec)
	if again := create(t, h, spec); again.ID != s.ID || again.Instance != s.Instance {
		t.Errorf("the same key gave %s and %s", s.Instance, again.Instance)
	}
	other := spec
	other.Memory = 1 << 30
	if _, err := h.Create(ctx, other); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the same key with another specification: got %v, want ErrConflict", err)
	}
	for _, ref := range []string{s.ID, s.ID[:6], "life"} {
		if got, err := h.Get(ctx, ref); err != nil || got.Instance != s.Instance || got.Owner != "somebody" || got.State != sandbox.Ready {
			t.Errorf("Get(%q): got %+v, %v", ref, got, err)
		}
	}
	run(t, s, "echo kept > /workspace/file")
	if err := h.Pause(ctx, s); err != nil || s.State != sandbox.Paused {
		t.Errorf("Pause: %v, %s", err, s.State)
	}
	if err := h.Stop(ctx, s, time.Second); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("Stop while paused: got %v, want ErrConflict", err)
	}
	if err := h.Resume(ctx, s); err != nil || s.State != sandbox.Ready {
		t.Errorf("Resume: %v, %s", err, s.State)
	}
	if err := h.Stop(ctx, s, 5*time.Second); err != nil || s.State != sandbox.Stopped {
		t.Errorf("Stop: %v, %s", err, s.State)
	}
	if err := h.Start(ctx, s); err != nil || s.State != sandbox.Ready {
		t.Errorf("Start: %v, %s", err, s.State)
	}
	if got, _ := run(t, s, "cat /workspace/file"); got != "kept" {
		t.Errorf("after stop and start: got %q, want kept", got)
	}
	if err := h.Stop(ctx, s, 5*time.Second); err != nil {
		t.Error(err)
	}
	if again := create(t, h, spec); again.Instance != s.Instance || again.State != sandbox.Ready {
		t.Errorf("Create of a stopped one: got %s, %s", again.Instance, again.State)
	}
	if err := errors.Join(h.Pause(ctx, s), h.Delete(ctx, s)); err != nil {
		t.Errorf("deleting a paused one: %v", err)
	}
	if _, err := h.Get(ctx, s.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("after Delete: got %v, want ErrNotFound", err)
	}
}

// TestDockerKilledInside kills a sandbox while it works.
func TestDockerKilledInside(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage)})
	run(t, s, "echo kept > /workspace/file")
	key := keyOf(t, s)
	ended := make(chan error, 1)
	go func() {
		_, err := runIn(ctx, s.Dial, key, "touch /tmp/begun; sleep 1000")
		ended <- err
	}()
	for begun := false; !begun; {
		out, err := h.CopyOut(ctx, s, "/tmp/begun")
		if begun = err == nil; begun {
			out.Close()
		}
	}
	dockerCLI(t, "kill", s.Instance)
	if err := <-ended; err == nil {
		t.Error("the action ended well although its sandbox was killed")
	}
	got, err := h.Get(ctx, s.ID)
	if err != nil || got.State != sandbox.Stopped {
		t.Fatalf("got %+v, %v, want a stopped sandbox", got, err)
	}
	if _, err := got.Dial(ctx); err == nil {
		t.Error("a stopped sandbox can be dialled")
	}
	details, err := h.Inspect(ctx, got)
	if err != nil || details.ExitCode != 137 || details.Ended.IsZero() {
		t.Errorf("Inspect: got %+v, %v, want exit code 137 and a time", details, err)
	}
	if err := h.Start(ctx, got); err != nil {
		t.Fatal(err)
	}
	if out, _ := run(t, got, "cat /workspace/file"); out != "kept" {
		t.Errorf("after Start: got %q, want kept", out)
	}
}

func TestDockerInspect(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), User: "root", Memory: 64 << 20, CPUs: 0.5, Pids: 64})
	got, err := h.Inspect(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got.Memory != 64<<20 || got.CPUs != 0.5 || got.Pids != 64 || got.Network != "bridge" || got.Started.IsZero() || len(got.LostProtection) != 1 {
		t.Errorf("got %+v", got)
	}
	if out, _ := run(t, s, "id -u"); out != "0" {
		t.Errorf("--user root: id -u is %q", out)
	}
	engine, err := h.Engine(t.Context())
	if err != nil || engine.Version == "" || engine.CPUs < 1 || engine.Transport != "socket" {
		t.Errorf("Engine: got %+v, %v", engine, err)
	}
}

func TestDockerStreams(t *testing.T) {
	t.Parallel()
	h := testHost(t)
	ctx := t.Context()
	watch, stopWatching := context.WithCancel(ctx)
	events := make(chan sandbox.Event, 100)
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = h.Events(watch, func(e sandbox.Event) error { events <- e; return nil })
	})
	defer watching.Wait()
	defer stopWatching()
	s := create(t, h, sandbox.Spec{Image: image(t, busyboxImage), Name: "streams"})
	testhelp.Eventually(t, func() bool { // the engine writes them down behind the answers
		var logs bytes.Buffer
		err := h.Logs(ctx, s, sandbox.LogOptions{Tail: new(5)}, &logs, &logs)
		return err == nil && strings.Contains(logs.String(), "serving")
	}, "the logs say that the server is serving")
	err := h.Stats(ctx, s, false, func(st sandbox.Stats) error {
		if st.Memory == 0 || st.MemoryLimit != 2<<30 || st.Pids < 2 {
			t.Errorf("Stats: got %+v", st)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "in.txt", Mode: 0o644, Size: 5, Uid: 1000, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "hello")
	w.Close()
	if err := h.CopyIn(ctx, s, "/workspace", &archive); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, s, "cat in.txt; [ $(stat -c %u in.txt) = $(id -u) ] && echo mine"); got != "hellomine" {
		t.Errorf("CopyIn: got %q", got)
	}
	out, err := h.CopyOut(ctx, s, "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var names []string
	for r := tar.NewReader(out); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	if got := strings.Join(names, " "); got != "workspace/ workspace/in.txt" {
		t.Errorf("CopyOut: got %q", got)
	}
	if _, err := h.CopyOut(ctx, s, "/not/there"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CopyOut of nothing: got %v, want fs.ErrNotExist", err)
	}
	if err := h.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"create", "start", "die", "destroy"} {
		for found := false; !found; {
			select {
			case e := <-events:
				found = e.What == want && e.ID == s.ID && e.Name == "streams"
			case <-ctx.Done():
				t.Fatalf("no event %q", want)
			}
		}
	}
}

func TestDockerMany(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	h := testHost(t, func(c *docker.Config) { c.StateDir = state })
	image(t, busyboxImage)
	const many = 30
	ids := make([]string, many)
	var group sync.WaitGroup
	start := time.Now()
	for i := range many {
		group.Go(func() {
			s, err := h.Create(t.Context(), sandbox.Spec{Image: busyboxImage, Memory: 64 << 20})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID
			if got, _ := run(t, s, "echo "+s.ID); got != s.ID {
				t.Errorf("sandbox %s answers %q", s.ID, got)
			}
			if err := h.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("%d created and removed in %v", many, time.Since(start))
	left, err := h.List(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("%d left, %v", len(left), err)
	}
	for _, dir := range []string{"sandboxes", "locks"} {
		if entries, err := os.ReadDir(filepath.Join(state, dir)); err != nil || len(entries) != 0 {
			t.Errorf("%s: %d left, %v", dir, len(entries), err)
		}
	}
}

// TestDockerSameKey has many creators of one sandbox.
func TestDockerSameKey(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	image(t, busyboxImage)
	containers := make([]string, 8)
	var group sync.WaitGroup
	for i := range containers {
		h := testHost(t, func(c *docker.Config) { c.StateDir = state })
		group.Go(func() {
			s, err := h.Create(t.Context(), sandbox.Spec{Image: busyboxImage, Key: t.Name()})
			if err != nil {
				t.Error(err)
				return
			}
			containers[i] = s.Instance
		})
	}
	group.Wait()
	for _, c := range containers {
		if c != containers[0] {
			t.Fatalf("got different sandboxes: %v", containers)
		}
	}
}

// TestDockerFillers has several controllers that bring a server which this
// engine has never seen.
func TestDockerFillers(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	binary, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	data := testhelp.ReadFile(t, binary)
	// Bytes behind an ELF file's sections change its sum and nothing else.
	data = fmt.Append(data, time.Now().UnixNano(), os.Getpid())
	changed := filepath.Join(t.TempDir(), "server")
	testhelp.WriteFile(t, changed, data, 0o600)
	volume := fmt.Sprintf("actiond-server-%x", sha256.Sum256(data))[:len("actiond-server-")+32]
	t.Cleanup(func() { dockerCLI(t, "volume", "rm", volume, volume+"-ok") })
	var group sync.WaitGroup
	for range 6 {
		h := testHost(t, func(c *docker.Config) { c.Servers = map[string]string{runtime.GOARCH: changed} })
		group.Go(func() {
			s, err := h.Create(t.Context(), sandbox.Spec{Image: busyboxImage})
			if err != nil {
				t.Error(err)
				return
			}
			if got, _ := run(t, s, "stat -c '%s %u %a' /.actiond/server"); got != fmt.Sprintf("%d 0 555", len(data)) {
				t.Errorf("the server in the sandbox: got size, owner and mode %q, want %d 0 555", got, len(data))
			}
		})
	}
	group.Wait()
	if left := dockerCLI(t, "ps", "-aq", "--filter", "name="+volume); left != "" {
		t.Errorf("what filled the volume is left: %s", left)
	}
}

const (
	childStep  = "ACTIOND_TEST_DIE_BEFORE_STEP"
	childState = "ACTIOND_TEST_STATE"
	childDoes  = "ACTIOND_TEST_DOES"
	childKey   = "ACTIOND_TEST_KEY"
)

// TestDockerChild is not a test of its own: TestDockerKilled runs it in a
// process that dies in the middle.
func TestDockerChild(t *testing.T) {
	die, err := strconv.Atoi(os.Getenv(childStep))
	if err != nil {
		return
	}
	binary, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	step := 0
	h, err := docker.Open(docker.Config{
		StateDir: os.Getenv(childState), Servers: map[string]string{runtime.GOARCH: binary}, Agent: agent.Agent{},
		Progress: func(string, sandbox.State, string) {
			if step++; step == die {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Image: busyboxImage, Key: os.Getenv(childKey)}
	if os.Getenv(childDoes) == "claim" {
		pool, err := sandbox.NewPool(t.Context(), h, "p", sandbox.Spec{Image: busyboxImage}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := pool.Claim(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	} else if _, err := h.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fmt.Println("survived")
}

// TestDockerKilled kills a controller before each step of a creation, and of a
// claim. After one reconciliation there is exactly one sandbox or none, and the
// key can be used again.
func TestDockerKilled(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	for _, what := range []string{"create", "claim"} {
		died := 0
		for killedBefore(t, what, died+1) {
			died++
		}
		t.Logf("%s has %d steps", what, died)
		if died < 3 {
			t.Errorf("%s was killed before %d steps only", what, died)
		}
	}
}

// killedBefore lets a child create or claim a sandbox and die before a step,
// and checks what is left. It reports whether the child died.
func killedBefore(t *testing.T, what string, step int) bool {
	t.Helper()
	name := fmt.Sprintf("%s killed before step %d", what, step)
	binary, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	h := testHost(t, func(c *docker.Config) { c.StateDir = state })
	pooled := 0
	if what == "claim" {
		fillPool(t, h)
		pooled = 1
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDockerChild$", "-test.v")
	cmd.Env = append(os.Environ(), childState+"="+state, childDoes+"="+what, childKey+"="+name,
		childStep+"="+strconv.Itoa(step), "ACTIOND_TEST_SERVER="+binary)
	out, err := cmd.CombinedOutput()
	survived := strings.Contains(string(out), "survived")
	if !survived && (err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
		t.Fatalf("%s: the child was not killed: %v\n%s", name, err, out)
	}
	if _, err := h.Prune(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if again, err := h.Prune(t.Context(), false); err != nil || len(again) != 0 {
		t.Errorf("%s: a second reconciliation removed %+v, %v", name, again, err)
	}
	left, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := 0
	for _, s := range left {
		if s.Pool != "" {
			continue // not claimed, and runs nothing yet
		}
		mine++
		if got, _ := run(t, s, "echo alive"); got != "alive" {
			t.Errorf("%s: what is left answers %q", name, got)
		}
	}
	if mine > 1 || len(left) > 1+pooled || survived && mine != 1 {
		t.Errorf("%s: left are %d of the key, %d in all", name, mine, len(left))
	}
	s := create(t, h, sandbox.Spec{Image: busyboxImage, Key: name})
	if got, _ := run(t, s, "echo again"); got != "again" {
		t.Errorf("%s: the sandbox of the key answers %q", name, got)
	}
	return !survived
}

// fillPool puts one sandbox into the pool and waits until it is ready.
func fillPool(t *testing.T, h *docker.Host) *sandbox.Pool {
	t.Helper()
	pool, err := sandbox.NewPool(t.Context(), h, "p", sandbox.Spec{Image: busyboxImage}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { pool.Run(ctx, time.Second) })
	testhelp.Eventually(t, func() bool {
		all, err := h.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 1 && all[0].State == sandbox.Ready
	}, "the pool is full")
	cancel()
	running.Wait()
	return pool
}

// TestDockerPool has more claimers than warm sandboxes.
func TestDockerPool(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	h := testHost(t)
	pool := fillPool(t, h)
	var mu sync.Mutex
	containers := map[string]bool{}
	warmOnes := 0
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			start := time.Now()
			s, warm, err := pool.Claim(t.Context(), sandbox.Spec{Image: busyboxImage, Name: "claimed-" + strconv.Itoa(i), Owner: "me"})
			if err != nil {
				t.Error(err)
				return
			}
			if got, _ := run(t, s, "echo mine"); got != "mine" {
				t.Errorf("claimed sandbox answers %q", got)
			}
			if warm {
				t.Logf("warm claim to first answer: %v", time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			containers[s.Instance] = true
			if warm {
				warmOnes++
			}
		})
	}
	group.Wait()
	if len(containers) != 6 || warmOnes != 1 {
		t.Errorf("got %d sandboxes, %d of them warm, want 6 and 1", len(containers), warmOnes)
	}
	if got, err := h.Get(t.Context(), "claimed-3"); err != nil || got.Owner != "me" || got.Pool != "" {
		t.Errorf("Get of a claimed one: %+v, %v", got, err)
	}
}

// The limits end a sandbox without help from this side: the server counts itself.
func TestDockerEndsByItself(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	h := testHost(t)
	for name, spec := range map[string]sandbox.Spec{"time to live": {TTL: 20 * time.Second}, "idle limit": {Idle: 20 * time.Second}} {
		spec.Image = busyboxImage
		s := create(t, h, spec)
		if out, _ := run(t, s, "echo alive"); out != "alive" {
			t.Errorf("%s: got %q", name, out)
		}
		testhelp.Eventually(t, func() bool {
			var err error
			if s, err = h.Get(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
			return s.State == sandbox.Stopped
		}, "%s: the sandbox stops", name)
		if !strings.Contains(s.Detail, "Exited (0)") {
			t.Errorf("%s: it ended badly: %s", name, s.Detail)
		}
	}
}

// The reaper ends what cannot end itself: here, because it is paused.
func TestDockerDeadlines(t *testing.T) {
	t.Parallel()
	image(t, busyboxImage)
	h := testHost(t)
	ctx := t.Context()
	specs := map[string]sandbox.Spec{
		"short": {TTL: 15 * time.Second}, "renewed": {TTL: 15 * time.Second}, "kept": {TTL: time.Hour, Idle: time.Hour},
	}
	sandboxes := map[string]*sandbox.Sandbox{}
	for name, spec := range specs {
		spec.Image = busyboxImage
		s := create(t, h, spec)
		sandboxes[name] = s
		if err := h.Pause(ctx, s); err != nil {
			t.Fatal(err)
		}
		if name == "renewed" {
			if err := h.Renew(ctx, s, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if err := h.Resume(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(time.Until(sandboxes["short"].Deadline))
	would, err := h.Prune(ctx, true)
	if err != nil || len(would) != 1 {
		t.Errorf("dry run: got %+v, %v, want one", would, err)
	}
	if _, err := h.Prune(ctx, false); err != nil {
		t.Fatal(err)
	}
	for name, s := range sandboxes {
		if _, err := h.Get(ctx, s.ID); (err == nil) != (name != "short") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	time.Sleep(time.Until(sandboxes["renewed"].Created.Add(17 * time.Second)))
	if out, _ := run(t, sandboxes["renewed"], "echo alive"); out != "alive" {
		t.Errorf("the renewed one: got %q", out)
	}
}
