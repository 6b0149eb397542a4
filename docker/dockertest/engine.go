// Package dockertest has a Docker engine for tests that need no containers: it
// speaks the part of the engine's API that package docker uses, keeps containers
// in memory, lets something listen for each that is started where the sandbox's
// server would, and fails on demand. Only tests import it.
package dockertest

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/volume"

	"github.com/actiond/actiond/egress"
)

// Fault is the failure of a call.
type Fault int

// The faults of calls.
const (
	Refused Fault = iota + 1 // an error is the answer, and nothing was done
	Lost                     // the connection ends, and nothing was done
	Deaf                     // the connection ends after the call was carried out
	Down                     // the connection ends, and so do those of all later calls
)

// Engine is the engine. Address is fixed; set Serve, Start and Hold before the
// first call. The mutex guards the other fields.
type Engine struct {
	sync.Mutex

	// Address is the value for docker.Config.Engine.
	Address string
	// Serve returns the handler of the container of a name for clients of its
	// sandbox's socket. Default: 404.
	Serve func(name string) http.Handler
	// Start replaces Serve: it starts a server on the socket "sock" in RunDir, and
	// returns a function that ends it.
	Start func(c *Container) (end func(), err error)
	// Hold is called before each call is carried out, with the name that Calls has
	// for it. It may wait.
	Hold func(call string)

	Containers map[string]*Container // by id
	Volumes    map[string]*volume.Volume
	Images     map[string]bool // nil: every image exists
	Networks   map[string]bool // nil: every network exists
	Pulls      bool            // images that are missing can be pulled
	Calls      []string        // the names of all calls so far, such as "create" and "copy to"

	FailAt   int              // the call, counted from 1, that Fault happens to; 0: none
	Fault    Fault            // of that call
	Refusals map[string]error // the answers to calls of a name, with an error of errdefs for the status
	Dies     bool             // containers end as soon as they are started
	Unborn   int              // so many creations find their name in use by an invisible container
	Foreign  []container.Summary
	CPUs     int           // of the host, 0: the engine does not report it
	Pid      int           // of every container that runs
	Ahead    time.Duration // how far its clock is ahead of this machine's
	Rooted   bool          // it does not say that it is rootless: its sockets are for root

	dir      string
	watchers map[chan events.Message]bool
	next     int
	over     chan struct{}
}

// Container is one container of an [Engine].
type Container struct {
	ID, Name string
	Config   *container.Config
	Host     *container.HostConfig
	State    container.ContainerState
	Exit     container.State // StartedAt, or how it ended: ExitCode and OOMKilled
	Created  time.Time
	Root     string // the directory with its files
	Served   bool   // its server was started once

	stop    func()
	exits   []chan struct{} // each is closed at the end of the next run
	removed chan struct{}
}

// now is the time on the engine's clock.
func (e *Engine) now() time.Time { return time.Now().Add(e.Ahead) }

// New starts an engine that has the images, or every image, and ends it with the test.
func New(tb testing.TB, images ...string) *Engine {
	tb.Helper()
	dir, err := os.MkdirTemp("/tmp", "engine-") // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{
		Address: "unix://" + filepath.Join(dir, "docker.sock"), dir: dir, over: make(chan struct{}),
		Serve:      func(string) http.Handler { return http.NotFoundHandler() },
		Containers: map[string]*Container{}, Volumes: map[string]*volume.Volume{}, watchers: map[chan events.Message]bool{},
	}
	e.Start = e.listen
	for _, image := range images {
		e.have(image)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
	if err != nil {
		tb.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: e.routes(), ReadHeaderTimeout: time.Minute}}
	server.Config.SetKeepAlivesEnabled(false) // a client repeats some calls if a connection that it had used before ends
	server.Start()
	tb.Cleanup(func() {
		close(e.over)
		e.Lock()
		for _, c := range e.Containers {
			e.end(c, 137)
		}
		e.Unlock()
		server.Close()
		_ = os.RemoveAll(dir)
	})
	return e
}

func (e *Engine) have(image string) {
	if e.Images == nil {
		e.Images = map[string]bool{}
	}
	e.Images[image] = true
}

// SetDown makes the engine end every connection, or answer again.
func (e *Engine) SetDown(down bool) {
	e.Lock()
	defer e.Unlock()
	e.FailAt = 0
	if !down {
		return
	}
	e.FailAt, e.Fault = 1, Down
	for w := range e.watchers {
		close(w)
		delete(e.watchers, w)
	}
}

// States returns the state of each container by its name.
func (e *Engine) States() map[string]string {
	e.Lock()
	defer e.Unlock()
	all := map[string]string{}
	for _, c := range e.Containers {
		all[c.Name] = c.State
	}
	return all
}

// Command returns the command line of the container of that name, nil where it
// does not exist.
func (e *Engine) Command(name string) []string {
	e.Lock()
	defer e.Unlock()
	if c := e.find(name); c != nil {
		return c.Config.Cmd
	}
	return nil
}

// Kill ends a container as if its processes had died of SIGKILL, by the kernel for
// want of memory or by anything else.
func (e *Engine) Kill(name string, outOfMemory bool) {
	e.Lock()
	defer e.Unlock()
	if c := e.find(name); c != nil {
		e.end(c, 137)
		c.Exit.OOMKilled = outOfMemory
	}
}

// End ends a container as if its processes had ended by themselves.
func (e *Engine) End(name string, status int) {
	e.Lock()
	defer e.Unlock()
	if c := e.find(name); c != nil {
		e.end(c, status)
	}
}

// RunDir returns the directory of the host that is mounted for the server's socket.
func (c *Container) RunDir() string { return c.mount("/run/actiond") }

// mount returns the directory of the host that is mounted at a path.
func (c *Container) mount(target string) string {
	for _, m := range c.Host.Mounts {
		if m.Target == target {
			return m.Source
		}
	}
	return ""
}

// find returns the container of an id or name, or nil. The caller holds the mutex.
func (e *Engine) find(ref string) *Container {
	if c := e.Containers[ref]; c != nil {
		return c
	}
	for _, c := range e.Containers {
		if c.Name == ref {
			return c
		}
	}
	return nil
}

// Run starts a container without a call.
func (e *Engine) Run(id string) error {
	e.Lock()
	defer e.Unlock()
	return e.run(e.Containers[id])
}

// run starts a container. The caller holds the mutex.
func (e *Engine) run(c *Container) error {
	if c.State == container.StateRunning {
		return nil
	}
	c.State, c.Exit = container.StateRunning, container.State{StartedAt: e.now().Format(time.RFC3339Nano)}
	if e.Dies {
		e.end(c, 1)
		return nil
	}
	if !slices.Contains(c.Config.Cmd, "--start-fifo") {
		return e.serve(c)
	}
	fifo, err := os.OpenFile(filepath.Join(c.RunDir(), "start"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	go func() { // ends when the controller writes or closes
		_, err := fifo.Read(make([]byte, 1))
		_ = fifo.Close()
		e.Lock()
		defer e.Unlock()
		if err == nil && c.State == container.StateRunning {
			err = e.serve(c)
		}
		if err != nil {
			e.end(c, 1)
		}
	}()
	return nil
}

func (e *Engine) serve(c *Container) (err error) {
	start := e.Start
	if c.Config.Labels["dev.actiond.managed"] == "egress" {
		start = e.egress
	}
	c.stop, err = start(c)
	if err != nil {
		c.State = container.StateExited
		return err
	}
	c.Served = true
	e.tell(c, "start")
	return nil
}

// listen serves HTTP where the server of a sandbox would.
func (e *Engine) listen(c *Container) (end func(), err error) {
	socket := filepath.Join(c.RunDir(), "sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: e.Serve(c.Name), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with the container
	return func() { _ = server.Close() }, nil  // removes the socket
}

// egress is an egress proxy in this process.
func (e *Engine) egress(c *Container) (end func(), err error) {
	dir := c.mount("/egress")
	listener, err := net.Listen("unix", filepath.Join(dir, "control"))
	if err != nil {
		return nil, err
	}
	proxy := egress.New(egress.Config{RunDir: filepath.Join(dir, "run"), Log: slog.New(slog.DiscardHandler)})
	control := egress.NewControl(proxy, filepath.Join(dir, "conf"), "test")
	_ = control.Load() // a broken file is the test's
	server := &http.Server{Handler: control.Handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with the container
	return func() {
		_ = server.Close() // removes the socket
		proxy.Close()
	}, nil
}

// end ends a container that runs. The caller holds the mutex.
func (e *Engine) end(c *Container, status int) {
	if c.State != container.StateRunning && c.State != container.StatePaused {
		return
	}
	c.State, c.Exit = container.StateExited, container.State{ExitCode: status, FinishedAt: time.Now().Format(time.RFC3339Nano)}
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
	for _, over := range c.exits {
		close(over)
	}
	c.exits = nil
	e.tell(c, "die", "exitCode", strconv.Itoa(status))
}

// tell sends an event to the watchers. The caller holds the mutex.
func (e *Engine) tell(c *Container, action events.Action, attributes ...string) {
	m := events.Message{Type: events.ContainerEventType, Action: action, TimeNano: time.Now().UnixNano()}
	m.Actor = events.Actor{ID: c.ID, Attributes: map[string]string{"name": c.Name, "image": c.Config.Image}}
	maps.Copy(m.Actor.Attributes, c.Config.Labels)
	for i := 0; i+1 < len(attributes); i += 2 {
		m.Actor.Attributes[attributes[i]] = attributes[i+1]
	}
	for w := range e.watchers {
		select {
		case w <- m:
		default: // without a reader
		}
	}
}

var errFull = errors.New("no space left on device")

// call wraps the handler of a call: it counts, holds and fails.
func (e *Engine) call(name string, do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if e.Hold != nil {
			e.Hold(name)
		}
		e.Lock()
		e.Calls = append(e.Calls, name)
		n, fault, refusal := len(e.Calls), Fault(0), e.Refusals[name]
		if e.FailAt > 0 && (n == e.FailAt || n > e.FailAt && e.Fault == Down) {
			fault = e.Fault
		}
		e.Unlock()
		switch {
		case fault == Refused:
			refuse(w, errFull)
			return
		case fault == Deaf && r.Method != http.MethodGet && r.Method != http.MethodHead && name != "wait":
			do(httptest.NewRecorder(), r)
		}
		switch {
		case fault != 0:
			panic(http.ErrAbortHandler)
		case refusal != nil:
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, refusal)
		default:
			do(w, r)
		}
	}
}

// down reports, and counts, a call that meets an engine which ends all connections.
func (e *Engine) down() bool {
	e.Lock()
	defer e.Unlock()
	down := e.Fault == Down && e.FailAt > 0 && len(e.Calls) >= e.FailAt
	if down {
		e.Calls = append(e.Calls, "ended")
	}
	return down
}

// routes are the calls of the API, at every version.
func (e *Engine) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, route := range map[string]struct {
		name string
		do   http.HandlerFunc
	}{
		"GET /info":                     {"info", e.info},
		"GET /events":                   {"events", e.events},
		"GET /images/{name...}":         {"image", e.locked(e.image)},
		"GET /images/json":              {"images", e.locked(e.images)},
		"POST /images/create":           {"pull", e.locked(e.pull)},
		"GET /networks":                 {"networks", e.networks},
		"GET /networks/{name}":          {"network", e.locked(e.network)},
		"GET /volumes":                  {"volumes", e.locked(e.volumes)},
		"POST /volumes/create":          {"volume create", e.volumeCreate},
		"GET /volumes/{name}":           {"volume", e.locked(e.volume)},
		"DELETE /volumes/{name}":        {"volume remove", e.locked(e.volumeRemove)},
		"POST /containers/create":       {"create", e.create},
		"GET /containers/json":          {"list", e.list},
		"GET /containers/{id}/json":     {"inspect", e.on(e.inspect)},
		"DELETE /containers/{id}":       {"remove", e.on(e.remove)},
		"POST /containers/{id}/start":   {"start", e.on(e.start)},
		"POST /containers/{id}/stop":    {"stop", e.on(e.stop)},
		"POST /containers/{id}/pause":   {"pause", e.become(container.StatePaused, events.ActionPause)},
		"POST /containers/{id}/unpause": {"unpause", e.become(container.StateRunning, events.ActionUnPause)},
		"POST /containers/{id}/rename":  {"rename", e.on(e.rename)},
		"POST /containers/{id}/wait":    {"wait", e.wait},
		"GET /containers/{id}/logs":     {"logs", e.on(e.logs)},
		"HEAD /containers/{id}/archive": {"stat", e.on(e.archive)},
		"GET /containers/{id}/archive":  {"copy from", e.on(e.archive)},
		"PUT /containers/{id}/archive":  {"copy to", e.on(e.unpack)},
		"GET /containers/{id}/stats":    {"stats", func(w http.ResponseWriter, _ *http.Request) { refuse(w, errors.New("no statistics")) }},
	} {
		mux.HandleFunc(pattern, e.call(route.name, route.do))
	}
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.down() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("API-Version", "1.41")
		if strings.HasPrefix(r.URL.Path, "/v1.") {
			r.URL.Path = r.URL.Path[strings.Index(r.URL.Path[1:], "/")+1:]
		}
		mux.ServeHTTP(w, r)
	})
}
