package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/sandbox"
)

// errDown is what a client gets from an engine that died in mid-call.
var errDown = fmt.Errorf("fake engine: %w", io.ErrUnexpectedEOF)

// fault is what goes wrong with a call.
type fault int

const (
	refused fault = iota + 1 // an error, nothing done
	lost                     // nothing done, no answer
	deaf                     // done, but the answer does not arrive
	down                     // nothing done, no answer, and so it stays
)

// fakeEngine keeps containers in memory. A started one listens on the socket in
// its directory. Calls are counted, and the one numbered failAt goes wrong.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]*fakeContainer // by id
	volumes    map[string]volume.Volume
	next       int
	calls      []string
	failAt     int
	fault      fault
	dies       bool // containers end as soon as they are started
	noImage    bool
	unborn     int              // so many creations find their name taken by what cannot be seen
	cpus       int              // 0: the engine does not say
	refusals   map[string]error // what calls of a name are answered with
	pid        int              // of every container that runs
	foreign    []container.Summary
	paths      map[string]container.PathStat // what there is in containers; nil: nothing
	copied     []string                      // names in archives for containers
}

type fakeContainer struct {
	id, name string
	config   *container.Config
	host     *container.HostConfig
	state    string
	created  time.Time
	files    map[string][]byte
	listener net.Listener
	served   bool            // the server was let start
	exits    []chan struct{} // each is closed at the end of the next run
	removed  chan struct{}
}

func newFake() *fakeEngine {
	return &fakeEngine{containers: map[string]*fakeContainer{}, volumes: map[string]volume.Volume{}}
}

// do counts a call and does it, or not.
func (f *fakeEngine) do(name string, work func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
	n := len(f.calls)
	switch {
	case f.failAt == 0 || n < f.failAt:
	case f.fault == down:
		return errDown
	case n > f.failAt:
	case f.fault == refused:
		return errors.New("fake engine: no space left on device")
	case f.fault == lost:
		return errDown
	case f.fault == deaf:
		return errors.Join(errDown, work())
	}
	if err := f.refusals[name]; err != nil {
		return err
	}
	return work()
}

func (f *fakeEngine) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt = 0
}

func (f *fakeEngine) find(ref string) (*fakeContainer, error) {
	for _, c := range f.containers {
		if c.id == ref || c.name == ref {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no container %s: %w", ref, cerrdefs.ErrNotFound)
}

func (f *fakeEngine) ContainerCreate(_ context.Context, config *container.Config, host *container.HostConfig, _ *network.NetworkingConfig, _ *ocispec.Platform, name string) (r container.CreateResponse, err error) {
	err = f.do("create", func() error {
		if c, _ := f.find(name); c != nil || f.unborn > 0 {
			f.unborn--
			return fmt.Errorf("name %s is taken: %w", name, cerrdefs.ErrConflict)
		}
		f.next++
		c := &fakeContainer{
			id: fmt.Sprintf("%064x", f.next), name: name, config: config, host: host, state: "created", created: time.Now(),
			files: map[string][]byte{}, removed: make(chan struct{}),
		}
		for _, m := range host.Mounts {
			if _, ok := f.volumes[m.Source]; m.Type == "volume" && !ok {
				f.volumes[m.Source] = volume.Volume{Name: m.Source, CreatedAt: time.Now().String(), Labels: m.VolumeOptions.Labels}
			}
		}
		f.containers[c.id] = c
		r.ID = c.id
		return nil
	})
	return r, err
}

func (c *fakeContainer) runDir() string {
	for _, m := range c.host.Mounts {
		if m.Target == "/run/actiond" {
			return m.Source
		}
	}
	return ""
}

func (f *fakeEngine) ContainerStart(ctx context.Context, id string, _ container.StartOptions) error {
	return f.do("start", func() error {
		c, err := f.find(id)
		if err != nil || c.state == "running" {
			return err
		}
		c.state = "running"
		if f.dies {
			c.end()
			return nil
		}
		if !slices.Contains(c.config.Cmd, "--start-fifo") {
			return c.listen(ctx)
		}
		fifo, err := os.OpenFile(filepath.Join(c.runDir(), "start"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		go func() { // ends when the controller writes or closes
			_, err := fifo.Read(make([]byte, 1))
			_ = fifo.Close()
			f.mu.Lock()
			defer f.mu.Unlock()
			if err == nil && c.state == "running" {
				err = c.listen(ctx)
			}
			if err != nil {
				c.end()
			}
		}()
		return nil
	})
}

func (c *fakeContainer) listen(ctx context.Context) (err error) {
	var config net.ListenConfig
	c.listener, err = config.Listen(context.WithoutCancel(ctx), "unix", filepath.Join(c.runDir(), "sock"))
	c.served = true
	return err
}

func (c *fakeContainer) end() {
	if c.state != "running" && c.state != "paused" {
		return
	}
	c.state = "exited"
	if c.listener != nil {
		_ = c.listener.Close()
	}
	for _, over := range c.exits {
		close(over)
	}
	c.exits = nil
}

func (f *fakeEngine) with(call, id string, work func(c *fakeContainer) error) error {
	return f.do(call, func() error {
		c, err := f.find(id)
		if err != nil {
			return err
		}
		return work(c)
	})
}

func (f *fakeEngine) ContainerStop(_ context.Context, id string, _ container.StopOptions) error {
	return f.with("stop", id, func(c *fakeContainer) error { c.end(); return nil })
}

func (f *fakeEngine) ContainerPause(_ context.Context, id string) error {
	return f.with("pause", id, func(c *fakeContainer) error { c.state = "paused"; return nil })
}

func (f *fakeEngine) ContainerUnpause(_ context.Context, id string) error {
	return f.with("unpause", id, func(c *fakeContainer) error { c.state = "running"; return nil })
}

func (f *fakeEngine) ContainerRename(_ context.Context, id, name string) error {
	return f.with("rename", id, func(c *fakeContainer) error {
		if other, _ := f.find(name); other != nil {
			return fmt.Errorf("name %s is taken: %w", name, cerrdefs.ErrConflict)
		}
		c.name = name
		return nil
	})
}

func (f *fakeEngine) ContainerRemove(_ context.Context, id string, _ container.RemoveOptions) error {
	return f.with("remove", id, func(c *fakeContainer) error {
		c.end()
		delete(f.containers, c.id)
		close(c.removed)
		return nil
	})
}

func (f *fakeEngine) ContainerWait(ctx context.Context, id string, condition container.WaitCondition) (<-chan container.WaitResponse, <-chan error) {
	answer, failed := make(chan container.WaitResponse, 1), make(chan error, 1)
	err := f.with("wait", id, func(c *fakeContainer) error {
		over := c.removed
		if condition == container.WaitConditionNextExit {
			over = make(chan struct{})
			c.exits = append(c.exits, over)
		}
		go func() {
			select {
			case <-over:
				answer <- container.WaitResponse{StatusCode: 1}
			case <-ctx.Done():
				failed <- ctx.Err()
			}
		}()
		return nil
	})
	if err != nil {
		failed <- err
	}
	return answer, failed
}

func (f *fakeEngine) ContainerInspect(_ context.Context, id string) (r container.InspectResponse, err error) {
	err = f.with("inspect", id, func(c *fakeContainer) error {
		r = container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{
				ID: c.id, Name: "/" + c.name, Created: c.created.Format(time.RFC3339Nano),
				State: &container.State{Status: c.state, Pid: f.pid, FinishedAt: time.Now().Format(time.RFC3339Nano)},
			},
			Config: c.config,
		}
		return nil
	})
	return r, err
}

func (f *fakeEngine) ContainerList(_ context.Context, options container.ListOptions) (all []container.Summary, err error) {
	err = f.do("list", func() error {
		if options.Filters.Len() == 0 {
			all = append(all, f.foreign...)
		}
		for _, c := range f.containers {
			if options.Filters.MatchKVList("label", c.config.Labels) {
				all = append(all, container.Summary{
					ID: c.id, Names: []string{"/" + c.name}, Image: c.config.Image, Labels: c.config.Labels,
					State: c.state, Created: c.created.Unix(), Mounts: c.mountPoints(),
				})
			}
		}
		return nil
	})
	return all, err
}

func (c *fakeContainer) mountPoints() (points []container.MountPoint) {
	for _, m := range c.host.Mounts {
		points = append(points, container.MountPoint{Type: m.Type, Source: m.Source, Destination: m.Target, RW: !m.ReadOnly})
	}
	return points
}

func (f *fakeEngine) ContainerLogs(_ context.Context, id string, _ container.LogsOptions) (r io.ReadCloser, err error) {
	err = f.with("logs", id, func(*fakeContainer) error {
		const line = "server: last words\n"
		r = io.NopCloser(strings.NewReader("\x02\x00\x00\x00\x00\x00\x00" + string(rune(len(line))) + line))
		return nil
	})
	return r, err
}

func (f *fakeEngine) ContainerStats(context.Context, string, bool) (container.StatsResponseReader, error) {
	return container.StatsResponseReader{}, errors.New("fake engine: no statistics")
}

func (f *fakeEngine) Events(context.Context, events.ListOptions) (<-chan events.Message, <-chan error) {
	failed := make(chan error, 1)
	failed <- errDown
	return nil, failed
}

func (f *fakeEngine) Info(context.Context) (info system.Info, err error) {
	return system.Info{SecurityOptions: []string{"name=rootless"}, NCPU: f.cpus}, f.do("info", func() error { return nil })
}

func (f *fakeEngine) ContainerStatPath(_ context.Context, id, path string) (container.PathStat, error) {
	stat, ok := f.paths[path]
	return stat, f.with("stat", id, func(*fakeContainer) error {
		if !ok {
			return fmt.Errorf("%s: %w", path, cerrdefs.ErrNotFound)
		}
		return nil
	})
}

func (f *fakeEngine) CopyToContainer(_ context.Context, id, _ string, content io.Reader, _ container.CopyToContainerOptions) error {
	return f.with("copy to", id, func(c *fakeContainer) error {
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			f.copied = append(f.copied, header.Name)
			if c.files["/"+header.Name], err = io.ReadAll(r); err != nil {
				return err
			}
		}
	})
}

func (f *fakeEngine) CopyFromContainer(_ context.Context, id, path string) (r io.ReadCloser, stat container.PathStat, err error) {
	err = f.with("copy from", id, func(c *fakeContainer) error {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: filepath.Base(path), Size: int64(len(c.files[path])), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(c.files[path]); err != nil {
			return err
		}
		r = io.NopCloser(&archive)
		return w.Close()
	})
	return r, stat, err
}

func (f *fakeEngine) ImageInspect(context.Context, string, ...client.ImageInspectOption) (r image.InspectResponse, err error) {
	r.Architecture = runtime.GOARCH
	err = f.do("image", func() error {
		if f.noImage {
			return fmt.Errorf("no image: %w", cerrdefs.ErrNotFound)
		}
		return nil
	})
	return r, err
}

func (f *fakeEngine) ImagePull(context.Context, string, image.PullOptions) (r io.ReadCloser, err error) {
	err = f.do("pull", func() error {
		f.noImage = false
		r = io.NopCloser(strings.NewReader(`{"status":"Pulling"}` + "\n"))
		return nil
	})
	return r, err
}

func (f *fakeEngine) ImageBuild(context.Context, io.Reader, build.ImageBuildOptions) (r build.ImageBuildResponse, err error) {
	return r, errors.New("fake engine: it builds nothing")
}

func (f *fakeEngine) VolumeInspect(_ context.Context, name string) (v volume.Volume, err error) {
	err = f.do("volume", func() error {
		var ok bool
		if v, ok = f.volumes[name]; !ok {
			return fmt.Errorf("no volume: %w", cerrdefs.ErrNotFound)
		}
		return nil
	})
	return v, err
}

func (f *fakeEngine) VolumeCreate(_ context.Context, o volume.CreateOptions) (v volume.Volume, err error) {
	err = f.do("volume create", func() error {
		v = volume.Volume{Name: o.Name, Labels: o.Labels, CreatedAt: time.Now().String()}
		f.volumes[o.Name] = v
		return nil
	})
	return v, err
}

func (f *fakeEngine) VolumeList(context.Context, volume.ListOptions) (r volume.ListResponse, err error) {
	err = f.do("volumes", func() error {
		for _, v := range f.volumes {
			r.Volumes = append(r.Volumes, &v)
		}
		return nil
	})
	return r, err
}

func (f *fakeEngine) VolumeRemove(_ context.Context, name string, _ bool) error {
	return f.do("volume remove", func() error {
		if _, ok := f.volumes[name]; !ok {
			return fmt.Errorf("no volume: %w", cerrdefs.ErrNotFound)
		}
		for _, c := range f.containers {
			if slices.ContainsFunc(c.host.Mounts, func(m mount.Mount) bool { return m.Source == name }) {
				return fmt.Errorf("the volume is in use: %w", cerrdefs.ErrConflict)
			}
		}
		delete(f.volumes, name)
		return nil
	})
}

// fakeAgent accepts one claim per sandbox and is ready at once.
type fakeAgent struct {
	mu      sync.Mutex
	keys    map[string]string // by what the sandbox's socket is
	status  sandbox.Status
	renewed []time.Duration
	err     error
}

func (a *fakeAgent) Ready(ctx context.Context, dial sandbox.DialFunc, _ string) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, conn.Close())
}

func (a *fakeAgent) Claim(ctx context.Context, dial sandbox.DialFunc, c sandbox.Claim) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	a.mu.Lock()
	defer a.mu.Unlock()
	at := conn.RemoteAddr().String() // the path that the listener was bound to
	if key, ok := a.keys[at]; ok && key != c.Key {
		return sandbox.ErrClaimed
	}
	a.keys[at] = c.Key
	return nil
}

// fail makes Ready fail from now on.
func (a *fakeAgent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// forget is what servers do that are started anew.
func (a *fakeAgent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.keys)
}

func (a *fakeAgent) claimed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.keys)
}

func (a *fakeAgent) Renew(_ context.Context, _ sandbox.DialFunc, _ string, ttl time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewed = append(a.renewed, ttl)
	return a.err
}

func (a *fakeAgent) Status(context.Context, sandbox.DialFunc, string) (sandbox.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status, nil
}

// fakeHost is a host on a fake engine.
func fakeHost(t *testing.T, f *fakeEngine, change ...func(*docker.Config)) *docker.Host {
	t.Helper()
	server := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(server, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := docker.Config{
		StateDir: t.TempDir(), Servers: map[string]string{runtime.GOARCH: server},
		Agent: &fakeAgent{keys: map[string]string{}}, ReadyTimeout: 10 * time.Second,
	}
	for _, c := range change {
		c(&config)
	}
	h, err := docker.OpenWith(config, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.heal()
		all, err := h.List(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		for _, s := range all {
			if err := h.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}
