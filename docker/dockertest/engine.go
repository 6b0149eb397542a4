// Package dockertest has a Docker engine for tests that need no containers: it
// speaks the part of the engine's API that package docker uses, keeps
// containers in memory, and lets each that is started serve HTTP on the socket
// where a sandbox's server would. Only tests import it.
package dockertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Engine is the engine. Its fields may be set before it is first called.
type Engine struct {
	// Address is what docker.Config.Engine wants.
	Address string
	// Serve is what the container of that name answers to clients of its sandbox's
	// socket. Required.
	Serve func(name string) http.Handler
	// Hold is called before each call that changes something, with its name, such
	// as "create" and "start"; it may wait.
	Hold func(call string)

	mu         sync.Mutex
	down       bool
	containers map[string]*container // by id
	volumes    map[string]*volume
	images     map[string]bool
	watchers   map[chan event]bool
	next       int
	over       chan struct{}
}

type container struct {
	id, name string
	config   map[string]any // as it was sent
	labels   map[string]string
	image    string
	runDir   string
	state    string
	created  time.Time
	files    map[string][]byte
	server   *http.Server
	exits    []chan struct{} // each is closed at the end of the next run
	removed  chan struct{}
}

type volume struct {
	Name      string
	Labels    map[string]string
	CreatedAt string
}

type event struct {
	Type, Action string
	Actor        struct {
		ID         string
		Attributes map[string]string
	}
	TimeNano int64 `json:"timeNano"`
}

// New starts an engine that has the images, and ends it with the test.
func New(tb testing.TB, serve func(name string) http.Handler, images ...string) *Engine {
	tb.Helper()
	dir, err := os.MkdirTemp("", "engine-") // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{
		Address: "unix://" + filepath.Join(dir, "docker.sock"), Serve: serve, containers: map[string]*container{},
		volumes: map[string]*volume{}, images: map[string]bool{}, watchers: map[chan event]bool{}, over: make(chan struct{}),
	}
	for _, image := range images {
		e.images[image] = true
	}
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "unix", filepath.Join(dir, "docker.sock"))
	if err != nil {
		tb.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}}
	server.Start()
	tb.Cleanup(func() {
		close(e.over)
		e.mu.Lock()
		all := e.containers
		e.containers = map[string]*container{}
		e.mu.Unlock()
		for _, c := range all {
			c.end()
		}
		server.Close()
		_ = os.RemoveAll(dir)
	})
	return e
}

// SetDown makes the engine cut every call off, or answer again.
func (e *Engine) SetDown(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
	for w := range e.watchers {
		if down {
			close(w)
			delete(e.watchers, w)
		}
	}
}

// Containers are the names and states of all.
func (e *Engine) Containers() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]string{}
	for _, c := range e.containers {
		all[c.name] = c.state
	}
	return all
}

// Command is the command line of the container of that name, nil where there is
// no such container.
func (e *Engine) Command(name string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.find(name)
	if c == nil {
		return nil
	}
	var words []string
	list, _ := c.config["Cmd"].([]any)
	for _, word := range list {
		text, _ := word.(string)
		words = append(words, text)
	}
	return words
}

// Kill ends a container as if its processes had died.
func (e *Engine) Kill(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.find(name); c != nil {
		e.end(c)
	}
}

func (e *Engine) end(c *container) {
	if c.state != "running" && c.state != "paused" {
		return
	}
	c.state = "exited"
	c.end()
	for _, over := range c.exits {
		close(over)
	}
	c.exits = nil
	e.tell(c, "die")
}

func (c *container) end() {
	if c.server != nil {
		_ = c.server.Close() // its socket goes with it
		c.server = nil
	}
}

func (e *Engine) find(ref string) *container {
	for _, c := range e.containers {
		if c.id == ref || c.name == ref {
			return c
		}
	}
	return nil
}

func (e *Engine) tell(c *container, action string) {
	told := event{Type: "container", Action: action, TimeNano: time.Now().UnixNano()}
	told.Actor.ID = c.id
	told.Actor.Attributes = map[string]string{"name": c.name, "image": c.image}
	maps.Copy(told.Actor.Attributes, c.labels)
	for w := range e.watchers {
		select {
		case w <- told:
		default: // without a reader
		}
	}
}

// ServeHTTP answers one call.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("API-Version", "1.41")
	path := r.URL.Path
	if strings.HasPrefix(path, "/v1.") {
		path = path[strings.Index(path[1:], "/")+1:]
	}
	if e.Hold != nil && r.Method != http.MethodGet && r.Method != http.MethodHead && path != "/_ping" {
		e.Hold(path[strings.LastIndexByte(path, '/')+1:])
	}
	switch kind, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); kind {
	case "_ping":
		_, _ = io.WriteString(w, "OK")
	case "info":
		answer(w, http.StatusOK, map[string]any{"SecurityOptions": []string{"name=rootless"}, "OperatingSystem": "none"})
	case "events":
		e.events(w, r)
	case "images":
		e.image(w, strings.TrimSuffix(rest, "/json"))
	case "build":
		e.build(w, r)
	case "volumes":
		e.volume(w, r, rest)
	case "containers":
		e.container(w, r, rest)
	default:
		refuse(w, http.StatusNotFound, "no such path")
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v)
	}
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]string{"message": fmt.Sprintf(format, args...)})
}

func (e *Engine) events(w http.ResponseWriter, r *http.Request) {
	told := make(chan event, 100)
	e.mu.Lock()
	e.watchers[told] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.watchers, told)
		e.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case one, open := <-told:
			if !open {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(one)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		case <-e.over:
			return
		}
	}
}

func (e *Engine) image(w http.ResponseWriter, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.images[name] {
		refuse(w, http.StatusNotFound, "no such image: %s", name)
		return
	}
	answer(w, http.StatusOK, map[string]any{"Id": "sha256:" + name, "Architecture": runtime.GOARCH, "Created": "2026-01-01T00:00:00Z", "Size": 1234})
}

// build takes an archive whose Dockerfile begins with FROM and has the image.
func (e *Engine) build(w http.ResponseWriter, r *http.Request) {
	plain, err := gzip.NewReader(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the archive is not compressed: %v", err)
		return
	}
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if err != nil {
			refuse(w, http.StatusBadRequest, "no Dockerfile: %v", err)
			return
		}
		if header.Name == "Dockerfile" {
			break
		}
	}
	text, _ := io.ReadAll(archive)
	if !bytes.HasPrefix(text, []byte("FROM ")) {
		answer(w, http.StatusOK, map[string]any{"error": "unknown instruction", "errorDetail": map[string]string{"message": "unknown instruction"}})
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, tag := range r.URL.Query()["t"] {
		e.images[tag] = true
	}
	answer(w, http.StatusOK, map[string]string{"stream": "Successfully built"})
}

func (e *Engine) volume(w http.ResponseWriter, r *http.Request, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Method == http.MethodPost {
		v := &volume{CreatedAt: time.Now().Format(time.RFC3339Nano)}
		_ = json.NewDecoder(r.Body).Decode(v)
		e.volumes[v.Name] = v
		answer(w, http.StatusCreated, v)
		return
	}
	v := e.volumes[name]
	switch {
	case v == nil:
		refuse(w, http.StatusNotFound, "no such volume")
	case r.Method == http.MethodDelete:
		delete(e.volumes, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, http.StatusOK, v)
	}
}

func (e *Engine) container(w http.ResponseWriter, r *http.Request, rest string) {
	id, verb, _ := strings.Cut(rest, "/")
	switch {
	case id == "create":
		e.create(w, r)
		return
	case id == "json":
		e.list(w, r)
		return
	case verb == "wait":
		e.wait(w, r, id)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.find(id)
	if c == nil {
		refuse(w, http.StatusNotFound, "no such container: %s", id)
		return
	}
	switch verb {
	case "":
		e.end(c)
		delete(e.containers, c.id)
		close(c.removed)
		e.tell(c, "destroy")
	case "start":
		if err := e.start(c); err != nil {
			refuse(w, http.StatusInternalServerError, "%v", err)
			return
		}
	case "stop":
		e.end(c)
		e.tell(c, "stop")
	case "pause":
		c.state = "paused"
		e.tell(c, verb)
	case "unpause":
		c.state = "running"
		e.tell(c, verb)
	case "rename":
		name := r.URL.Query().Get("name")
		if e.find(name) != nil {
			refuse(w, http.StatusConflict, "name %s is taken", name)
			return
		}
		c.name = name
		e.tell(c, verb)
	case "json":
		answer(w, http.StatusOK, map[string]any{
			"Id": c.id, "Name": "/" + c.name, "Created": c.created.Format(time.RFC3339Nano), "Config": c.config,
			"State": map[string]any{"Status": c.state, "FinishedAt": time.Now().Format(time.RFC3339Nano)},
		})
		return
	case "logs":
		const line = "server: last words\n"
		_, _ = io.WriteString(w, "\x02\x00\x00\x00\x00\x00\x00"+string(rune(len(line)))+line)
		return
	case "archive":
		c.archive(w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *Engine) create(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked struct {
		Image      string
		Labels     map[string]string
		HostConfig struct {
			Mounts []struct {
				Type, Source, Target string
				VolumeOptions        struct{ Labels map[string]string }
			}
		}
	}
	c := &container{name: r.URL.Query().Get("name"), state: "created", created: time.Now(), files: map[string][]byte{}, removed: make(chan struct{})}
	if err := errors.Join(json.Unmarshal(body, &asked), json.Unmarshal(body, &c.config)); err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.find(c.name) != nil:
		refuse(w, http.StatusConflict, "name %s is taken", c.name)
		return
	case !e.images[asked.Image]:
		refuse(w, http.StatusNotFound, "no such image: %s", asked.Image)
		return
	}
	for _, m := range asked.HostConfig.Mounts {
		if m.Target == "/run/actiond" {
			c.runDir = m.Source
		}
		if m.Type == "volume" && e.volumes[m.Source] == nil {
			e.volumes[m.Source] = &volume{m.Source, m.VolumeOptions.Labels, time.Now().Format(time.RFC3339Nano)}
		}
	}
	e.next++
	c.id, c.image, c.labels = fmt.Sprintf("%064x", e.next), asked.Image, asked.Labels
	e.containers[c.id] = c
	e.tell(c, "create")
	answer(w, http.StatusCreated, map[string]any{"Id": c.id, "Warnings": []string{}})
}

func (e *Engine) start(c *container) error {
	if c.state == "running" {
		return nil
	}
	socket := filepath.Join(c.runDir, "sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	c.server = &http.Server{Handler: e.Serve(c.name), ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(listener) }(c.server) // ends with the container
	c.state = "running"
	e.tell(c, "start")
	return nil
}

func (e *Engine) list(w http.ResponseWriter, r *http.Request) {
	var filter struct{ Label map[string]bool }
	_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filter)
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []map[string]any{}
	for _, c := range e.containers {
		matches := true
		for label := range filter.Label {
			name, value, _ := strings.Cut(label, "=")
			matches = matches && c.labels[name] == value
		}
		if matches {
			all = append(all, map[string]any{
				"Id": c.id, "Names": []string{"/" + c.name}, "Image": c.image, "Labels": c.labels, "State": c.state,
				"Status": c.state, "Created": c.created.Unix(),
			})
		}
	}
	answer(w, http.StatusOK, all)
}

func (e *Engine) wait(w http.ResponseWriter, r *http.Request, id string) {
	e.mu.Lock()
	c := e.find(id)
	if c == nil {
		e.mu.Unlock()
		refuse(w, http.StatusNotFound, "no such container: %s", id)
		return
	}
	over := c.removed
	if r.URL.Query().Get("condition") == "next-exit" {
		over = make(chan struct{})
		c.exits = append(c.exits, over)
	}
	e.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-over:
		_ = json.NewEncoder(w).Encode(map[string]int{"StatusCode": 1})
	case <-r.Context().Done():
	case <-e.over:
	}
}

// archive keeps files that are copied in, and gives them back.
func (c *container) archive(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	if r.Method == http.MethodPut {
		for archive := tar.NewReader(r.Body); ; {
			header, err := archive.Next()
			if err != nil {
				return
			}
			c.files[filepath.Join(path, header.Name)], _ = io.ReadAll(archive)
		}
	}
	data, there := c.files[path]
	if !there && !slices.Contains([]string{"/bin/sh"}, path) {
		refuse(w, http.StatusNotFound, "no such file: %s", path)
		return
	}
	stat, _ := json.Marshal(map[string]any{"name": filepath.Base(path), "size": len(data)})
	w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(stat))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	archive := tar.NewWriter(w)
	_ = archive.WriteHeader(&tar.Header{Name: filepath.Base(path), Size: int64(len(data)), Typeflag: tar.TypeReg})
	_, _ = archive.Write(data)
	_ = archive.Close()
}
