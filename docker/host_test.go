package docker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	agent := &fakeAgent{}
	for name, config := range map[string]docker.Config{
		"no agent":        {StateDir: dir},
		"prefix":          {StateDir: dir, Agent: agent, Prefix: "../"},
		"transport":       {StateDir: dir, Agent: agent, Transport: "smoke"},
		"relative state":  {StateDir: "state", Agent: agent},
		"state is a link": {StateDir: link, Agent: agent},
		"state is a file": {StateDir: file, Agent: agent},
	} {
		if h, err := docker.Open(config); err == nil {
			t.Errorf("%s: opened", name)
			_ = h.Close()
		}
	}
}

func TestStateIsClosedToOthers(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o777); err != nil {
		t.Fatal(err)
	}
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.StateDir = state })
	create(t, h, sandbox.Spec{Image: "debian"})
	err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Type()&os.ModeSocket == 0 && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestControllers: two state directories are two controllers, and one does not
// see what the other has.
func TestControllers(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := t.TempDir()
	one := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
	same := fakeHost(t, f, func(c *docker.Config) { c.StateDir = state })
	other := fakeHost(t, f)
	s := create(t, one, sandbox.Spec{Image: "debian", Key: "k"})
	if got, err := same.Get(t.Context(), s.ID); err != nil || got.Instance != s.Instance {
		t.Errorf("the same controller: got %v, %v", got, err)
	}
	if all, err := other.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("another controller lists %v, %v", all, err)
	}
	if removed, err := other.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("another controller removes %v, %v", removed, err)
	}
}

func TestGetNothing(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, dockertest.New(t))
	create(t, h, sandbox.Spec{Image: "debian"})
	if _, err := h.Get(t.Context(), ""); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("nothing: got %v, want ErrNotFound", err)
	}
}

func TestServerUID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		info system.Info
		want int
	}{
		{system.Info{}, 0},
		{system.Info{SecurityOptions: []string{"name=seccomp,profile=default"}}, 0},
		{system.Info{SecurityOptions: []string{"name=rootless"}}, os.Geteuid()},
		{system.Info{SecurityOptions: []string{"name=userns"}, DockerRootDir: "/var/lib/docker/165536.165536"}, 165536},
	} {
		if got := docker.ServerUID(tt.info); got != tt.want {
			t.Errorf("%+v: got %d, want %d", tt.info.SecurityOptions, got, tt.want)
		}
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	good := system.Info{
		SecurityOptions: []string{"name=seccomp,profile=builtin", "name=apparmor"}, MemoryLimit: true, SwapLimit: true,
		CPUCfsQuota: true, PidsLimit: true, LiveRestoreEnabled: true, CgroupVersion: "2",
	}
	if got := docker.Findings(good, true); len(got) != 0 {
		t.Errorf("nothing is wrong: got %+v", got)
	}
	bad := system.Info{CgroupVersion: "1", Warnings: []string{"WARNING: API is accessible on http://0.0.0.0:2375 without encryption."}}
	got := docker.Findings(bad, false)
	if len(got) != 9 {
		t.Errorf("got %d findings, want 9: %+v", len(got), got)
	}
	for _, f := range got {
		if f.What == "" || f.So == "" {
			t.Errorf("an empty finding: %+v", f)
		}
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	config, host, err := docker.Plan(sandbox.Spec{
		Image: "i", UserID: 1000, SecurityOpts: []string{"apparmor=unconfined"}, Mounts: []sandbox.Mount{{Source: "/srv/x", Target: "/x"}},
	}, "/r", "v", "")
	if err != nil {
		t.Fatal(err)
	}
	got := docker.DetailsOf(container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{
			Image: "sha256:1", HostConfig: host,
			State: &container.State{StartedAt: "2026-01-02T03:04:05.5Z", FinishedAt: "0001-01-01T00:00:00Z", OOMKilled: true},
		},
		Config: config,
	})
	want := &sandbox.Details{
		ImageID: "sha256:1", Started: time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC), OutOfMemory: true,
		Network: "bridge", WorkDir: "/workspace", Memory: 2 << 30, Pids: 512, CPUs: 2, Mounts: []sandbox.Mount{{Source: "/srv/x", Target: "/x"}},
		SecurityOpts:   []string{"apparmor=unconfined", "no-new-privileges", "seccomp=(built in)"},
		LostProtection: []string{"apparmor is off", "the agent changes /srv/x on the host"}, Server: "feed",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestContextHost(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("far"))
	meta := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]))
	if err := errors.Join(
		os.MkdirAll(meta, 0o700),
		os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"far","Endpoints":{"docker":{"Host":"tcp://far:1"}}}`), 0o600),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"far"}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	for name, want := range map[string]string{"": "tcp://far:1", "far": "tcp://far:1", "default": ""} {
		t.Setenv("DOCKER_CONTEXT", name)
		if got, err := docker.ContextHost(); err != nil || got != want {
			t.Errorf("context %q: got %q, %v, want %q", name, got, err, want)
		}
	}
	t.Setenv("DOCKER_CONTEXT", "missing")
	const missing = `there is no Docker context "missing": 'docker context ls' shows those that there are`
	if got, err := docker.ContextHost(); err == nil || err.Error() != missing {
		t.Errorf("a context that is not there: got %q, %v", got, err)
	}
}

// An engine that cannot be reached is named by the address of the current context.
func TestUnreachableContext(t *testing.T) {
	dir := t.TempDir()
	address := "unix://" + filepath.Join(dir, "engine.sock")
	sum := sha256.Sum256([]byte("near"))
	meta := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]))
	if err := errors.Join(
		os.MkdirAll(meta, 0o700),
		os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"near","Endpoints":{"docker":{"Host":"`+address+`"}}}`), 0o600),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"near"}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("DOCKER_CONTEXT", "")
	t.Setenv("DOCKER_HOST", "")
	h, err := docker.Open(docker.Config{StateDir: t.TempDir(), Agent: agent.Agent{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.List(t.Context()); !errors.Is(err, sandbox.ErrUnknown) || !strings.Contains(err.Error(), "the Docker engine at "+address+" ") {
		t.Errorf("got %v, want the address %s", err, address)
	}
}

// An address that cannot be understood is named, wherever it is from.
func TestOpenBadAddress(t *testing.T) {
	t.Setenv("DOCKER_HOST", "nonsense")
	_, err := docker.Open(docker.Config{StateDir: t.TempDir()})
	if err == nil || !strings.HasPrefix(err.Error(), "opening the Docker engine nonsense: ") {
		t.Errorf("got %v", err)
	}
}

func TestPullProgress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, report, err string
		want              []string
	}{
		{"fine", `{"status":"Pulling from x"}` + "\n" + `{"status":"Digest: y"}`, "", []string{"Pulling from x 0/0", "Digest: y 0/0"}},
		{
			"layers", `{"status":"Downloading","progressDetail":{"current":1,"total":10},"id":"a"}` +
				`{"status":"Downloading","progressDetail":{"current":5,"total":30},"id":"b"}` +
				`{"status":"Downloading","progressDetail":{"current":7,"total":10},"id":"a"}` +
				`{"status":"Downloading","progressDetail":{"current":7},"id":"c"}` +
				`{"status":"Extracting","progressDetail":{"current":7,"total":10},"id":"a"}`,
			"",
			[]string{"Downloading 1/10", "Downloading 6/40", "Downloading 12/40", "Downloading 0/0", "Extracting 0/0"},
		},
		{"an error in it", `{"status":"Pulling"}` + "\n" + `{"error":"manifest unknown","errorDetail":{"message":"manifest unknown"}}`, "manifest unknown", []string{"Pulling 0/0"}},
		{"cut", `{"status":`, "reading the engine's report: unexpected EOF", nil},
		{"empty", "", "", nil},
	} {
		var got []string
		err := docker.ReadReport(strings.NewReader(tt.report), docker.PullProgress(func(status string, done, total int64) {
			got = append(got, fmt.Sprintf("%s %d/%d", status, done, total))
		}))
		if message := fmt.Sprint(err); err == nil && tt.err != "" || err != nil && message != tt.err {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.err)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	raw := &container.StatsResponse{Read: time.Unix(11, 0), PreRead: time.Unix(10, 0)}
	raw.CPUStats.CPUUsage.TotalUsage, raw.PreCPUStats.CPUUsage.TotalUsage = 2_500_000_000, 1_000_000_000
	raw.MemoryStats.Usage, raw.MemoryStats.Limit = 100, 1000
	raw.MemoryStats.Stats = map[string]uint64{"inactive_file": 30}
	raw.PidsStats.Current = 3
	raw.Networks = map[string]container.NetworkStats{"a": {RxBytes: 1, TxBytes: 2}, "b": {RxBytes: 10, TxBytes: 20}}
	raw.BlkioStats.IoServiceBytesRecursive = []container.BlkioStatEntry{{Op: "Read", Value: 5}, {Op: "write", Value: 6}, {Op: "Total", Value: 11}}
	want := sandbox.Stats{
		Time: time.Unix(11, 0), CPU: 1.5, Memory: 70, MemoryLimit: 1000, Pids: 3, NetIn: 11, NetOut: 22, DiskIn: 5, DiskOut: 6,
	}
	if got := docker.StatsOf(raw); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state *container.State
		shell bool
		want  string
	}{
		{&container.State{}, false, "no shell"},
		{&container.State{OOMKilled: true}, true, "more memory"},
		{&container.State{Error: "exec format error"}, true, "another processor"},
		{&container.State{Error: "something else"}, true, "The engine says: something else"},
		{&container.State{Error: "it ended"}, true, ""}, // it is said already
		{&container.State{}, true, ""},
	} {
		info := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{State: tt.state}}
		if got := docker.Hint(info, tt.shell, errors.New("it ended")); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%+v: got %q, want %q in it", tt.state, got, tt.want)
		}
	}
	absent := fmt.Errorf("network build not found: %w", cerrdefs.ErrNotFound)
	for network, want := range map[container.NetworkMode]string{
		"build": "Make the network with 'docker network create build', or take another one.", "bridge": "",
	} {
		info := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{
			State: &container.State{Error: "network build not found"}, HostConfig: &container.HostConfig{NetworkMode: network},
		}}
		if got := docker.Hint(info, true, absent); got != want {
			t.Errorf("network %s: got %q, want %q", network, got, want)
		}
	}
}

// TestDamagedServer has an engine that loses a part of what is copied.
func TestDamagedServer(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	f.Hold = func(call string) {
		f.Lock()
		defer f.Unlock()
		for _, c := range f.Containers {
			if files, err := filepath.Glob(c.Root + "/.actiond/server"); call == "copy from" && (err != nil || len(files) != 1 || os.Chmod(files[0], 0o700) != nil || os.Truncate(files[0], 3) != nil) {
				t.Errorf("copied were %q, %v", files, err)
			}
		}
	}
	if _, err := fakeHost(t, f).Create(t.Context(), sandbox.Spec{Image: "debian"}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v, want a damaged server", err)
	}
	for name := range f.Volumes {
		if strings.HasSuffix(name, "-ok") {
			t.Error("the damaged server was marked as good")
		}
	}
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.Servers = map[string]string{"mips": "/nowhere"} })
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "debian"}); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "mips") {
		t.Errorf("got %v, want what there is", err)
	}
}

// A container is paused also where runc gives up at first, and one that cannot be is tried ten times.
func TestPauseBusy(t *testing.T) {
	t.Parallel()
	engine := dockertest.New(t)
	var failures atomic.Int32
	failures.Store(2)
	engine.Hold = func(call string) {
		engine.Lock()
		defer engine.Unlock()
		engine.Refusals = nil
		if call == "pause" && failures.Add(-1) >= 0 {
			engine.Refusals = map[string]error{"pause": errors.New("OCI runtime pause failed: unable to freeze: unknown")}
		}
	}
	h := fakeHost(t, engine)
	s := create(t, h, sandbox.Spec{Image: "debian"})
	if err := h.Pause(t.Context(), s); err != nil || failures.Load() >= 0 {
		t.Fatalf("got %v after %d failures", err, 2-failures.Load())
	}
	if err := h.Resume(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	failures.Store(1 << 20)
	if err := h.Pause(t.Context(), s); err == nil || !strings.Contains(err.Error(), "unable to freeze") {
		t.Errorf("got %v, want the engine's reason", err)
	}
	if tries := 1<<20 - failures.Load(); tries != 10 {
		t.Errorf("got %d tries, want 10", tries)
	}
}

// TestMain keeps temporary directories near the root: tests put sockets there,
// and the kernel takes no longer paths than 107 bytes for those.
func TestMain(m *testing.M) {
	if len(os.TempDir()) > 20 {
		os.Setenv("TMPDIR", "/tmp")
	}
	removeHome, err := drivertest.EmptyHome()
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	removeHome()
	os.Exit(code)
}
