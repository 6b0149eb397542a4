package dockertest

import (
	"archive/tar"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
)

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case cerrdefs.IsNotFound(err):
		status = http.StatusNotFound
	case cerrdefs.IsConflict(err):
		status = http.StatusConflict
	case cerrdefs.IsInvalidArgument(err):
		status = http.StatusBadRequest
	}
	answer(w, status, map[string]string{"message": err.Error()})
}

// done is the answer to a call that returns nothing.
func done(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *Engine) info(w http.ResponseWriter, _ *http.Request) {
	info := system.Info{OperatingSystem: "none", NCPU: e.CPUs, SystemTime: e.now().Format(time.RFC3339Nano)}
	if !e.Rooted {
		info.SecurityOptions = []string{"name=rootless"}
	}
	answer(w, http.StatusOK, info)
}

func (e *Engine) events(w http.ResponseWriter, r *http.Request) {
	told := make(chan events.Message, 100)
	e.Lock()
	e.watchers[told] = true
	e.Unlock()
	defer func() {
		e.Lock()
		delete(e.watchers, told)
		e.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case one, open := <-told:
			if !open {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(one)
		case <-r.Context().Done():
			return
		case <-e.over:
			return
		}
	}
}

func (e *Engine) image(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.PathValue("name"), "/json")
	if e.Images != nil && !e.Images[name] {
		refuse(w, fmt.Errorf("no such image: %s: %w", name, cerrdefs.ErrNotFound))
		return
	}
	answer(w, http.StatusOK, image.InspectResponse{ID: "sha256:" + name, Architecture: runtime.GOARCH, Created: "2026-01-01T00:00:00Z", Size: 1234})
}

func (e *Engine) network(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if e.Networks != nil && !e.Networks[name] {
		refuse(w, fmt.Errorf("network %s not found: %w", name, cerrdefs.ErrNotFound))
		return
	}
	answer(w, http.StatusOK, network.Inspect{Name: name})
}

func (e *Engine) networks(w http.ResponseWriter, _ *http.Request) {
	bridge := network.Summary{Name: "bridge"}
	bridge.IPAM.Config = []network.IPAMConfig{{Subnet: "172.17.0.0/16"}}
	answer(w, http.StatusOK, []network.Summary{bridge})
}

func (e *Engine) images(w http.ResponseWriter, _ *http.Request) {
	list := []image.Summary{{RepoTags: []string{"<none>:<none>"}}}
	for name := range e.Images {
		list = append(list, image.Summary{RepoTags: []string{name}})
	}
	answer(w, http.StatusOK, list)
}

func (e *Engine) pull(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("fromSrc") == "-" { // an import
		_, _ = io.Copy(io.Discard, r.Body)
		if e.Images != nil {
			e.have(r.FormValue("repo") + ":" + r.FormValue("tag"))
		}
		answer(w, http.StatusOK, map[string]string{"status": "imported"})
		return
	}
	if name := strings.TrimPrefix(r.FormValue("fromImage"), "docker.io/library/"); e.Images != nil {
		if !e.Pulls {
			refuse(w, fmt.Errorf("pull access denied for %s, repository does not exist: %w", name, cerrdefs.ErrNotFound))
			return
		}
		e.have(name)
	}
	answer(w, http.StatusOK, map[string]string{"status": "Pulling"})
}

func (e *Engine) volumes(w http.ResponseWriter, _ *http.Request) {
	var all volume.ListResponse
	for _, v := range e.Volumes {
		all.Volumes = append(all.Volumes, v)
	}
	answer(w, http.StatusOK, all)
}

func (e *Engine) volumeCreate(w http.ResponseWriter, r *http.Request) {
	var asked volume.CreateOptions
	_ = json.NewDecoder(r.Body).Decode(&asked)
	e.Lock()
	defer e.Unlock()
	answer(w, http.StatusCreated, e.newVolume(asked.Name, asked.Labels))
}

func (e *Engine) newVolume(name string, labels map[string]string) *volume.Volume {
	v := &volume.Volume{Name: name, Labels: labels, CreatedAt: time.Now().Format(time.RFC3339Nano)}
	e.Volumes[name] = v
	return v
}

func (e *Engine) volume(w http.ResponseWriter, r *http.Request) {
	v := e.Volumes[r.PathValue("name")]
	if v == nil {
		refuse(w, fmt.Errorf("no such volume: %w", cerrdefs.ErrNotFound))
		return
	}
	answer(w, http.StatusOK, v)
}

func (e *Engine) volumeRemove(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if e.Volumes[name] == nil {
		refuse(w, fmt.Errorf("no such volume: %w", cerrdefs.ErrNotFound))
		return
	}
	for _, c := range e.Containers {
		if slices.ContainsFunc(c.Host.Mounts, func(m mount.Mount) bool { return m.Source == name }) {
			refuse(w, fmt.Errorf("the volume is in use: %w", cerrdefs.ErrConflict))
			return
		}
	}
	delete(e.Volumes, name)
	done(w, nil)
}

func (e *Engine) create(w http.ResponseWriter, r *http.Request) {
	var asked container.CreateRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		refuse(w, fmt.Errorf("%w: %w", cerrdefs.ErrInvalidArgument, err))
		return
	}
	e.Lock()
	defer e.Unlock()
	name := r.URL.Query().Get("name")
	switch {
	case e.find(name) != nil || e.Unborn > 0:
		e.Unborn--
		refuse(w, fmt.Errorf("name %s is taken: %w", name, cerrdefs.ErrConflict))
		return
	case e.Images != nil && !e.Images[asked.Image]:
		refuse(w, fmt.Errorf("no such image: %s: %w", asked.Image, cerrdefs.ErrNotFound))
		return
	}
	c := e.add(name, asked.Config, asked.HostConfig)
	answer(w, http.StatusCreated, container.CreateResponse{ID: c.ID, Warnings: []string{}})
}

func (e *Engine) add(name string, config *container.Config, host *container.HostConfig) *Container {
	for _, m := range host.Mounts {
		if m.Type == mount.TypeVolume && e.Volumes[m.Source] == nil {
			e.newVolume(m.Source, m.VolumeOptions.Labels)
		}
	}
	e.next++
	c := &Container{
		ID: fmt.Sprintf("%064x", e.next), Name: name, Config: config, Host: host, State: container.StateCreated, Created: e.now(),
		Root: filepath.Join(e.dir, fmt.Sprint(e.next)), removed: make(chan struct{}),
	}
	e.Containers[c.ID] = c
	e.tell(c, events.ActionCreate)
	return c
}

// Add makes a container without a call.
func (e *Engine) Add(name string) *Container {
	e.Lock()
	defer e.Unlock()
	return e.add(name, &container.Config{}, &container.HostConfig{})
}

func (e *Engine) list(w http.ResponseWriter, r *http.Request) {
	wanted, err := filters.FromJSON(r.URL.Query().Get("filters"))
	if err != nil {
		refuse(w, fmt.Errorf("%w: %w", cerrdefs.ErrInvalidArgument, err))
		return
	}
	e.Lock()
	defer e.Unlock()
	all := []container.Summary{}
	if wanted.Len() == 0 {
		all = append(all, e.Foreign...)
	}
	for _, c := range e.Containers {
		if !wanted.MatchKVList("label", c.Config.Labels) {
			continue
		}
		var points []container.MountPoint
		for _, m := range c.Host.Mounts {
			points = append(points, container.MountPoint{Type: m.Type, Source: m.Source, Destination: m.Target, RW: !m.ReadOnly})
		}
		all = append(all, container.Summary{
			ID: c.ID, Names: []string{"/" + c.Name}, Image: c.Config.Image, Labels: c.Config.Labels,
			State: c.State, Status: c.State, Created: c.Created.Unix(), Mounts: points,
		})
	}
	answer(w, http.StatusOK, all)
}

// locked is a call with the mutex held.
func (e *Engine) locked(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e.Lock()
		defer e.Unlock()
		do(w, r)
	}
}

// on is a call for one container.
func (e *Engine) on(do func(w http.ResponseWriter, r *http.Request, c *Container)) http.HandlerFunc {
	return e.locked(func(w http.ResponseWriter, r *http.Request) {
		if c := e.find(r.PathValue("id")); c != nil {
			do(w, r, c)
			return
		}
		refuse(w, fmt.Errorf("no such container: %s: %w", r.PathValue("id"), cerrdefs.ErrNotFound))
	})
}

func (e *Engine) start(w http.ResponseWriter, _ *http.Request, c *Container) { done(w, e.run(c)) }

func (e *Engine) stop(w http.ResponseWriter, _ *http.Request, c *Container) {
	e.end(c, 0)
	e.tell(c, events.ActionStop)
	done(w, nil)
}

// become is a call that brings a container into a state.
func (e *Engine) become(state container.ContainerState, action events.Action) http.HandlerFunc {
	return e.on(func(w http.ResponseWriter, _ *http.Request, c *Container) {
		c.State = state
		e.tell(c, action)
		done(w, nil)
	})
}

func (e *Engine) rename(w http.ResponseWriter, r *http.Request, c *Container) {
	name := r.URL.Query().Get("name")
	if e.find(name) != nil {
		refuse(w, fmt.Errorf("name %s is taken: %w", name, cerrdefs.ErrConflict))
		return
	}
	c.Name = name
	e.tell(c, events.ActionRename)
	done(w, nil)
}

func (e *Engine) remove(w http.ResponseWriter, _ *http.Request, c *Container) {
	e.end(c, 137)
	delete(e.Containers, c.ID)
	close(c.removed)
	e.tell(c, events.ActionDestroy)
	done(w, nil)
}

func (e *Engine) inspect(w http.ResponseWriter, _ *http.Request, c *Container) {
	state := c.Exit
	state.Status, state.Pid = c.State, e.Pid
	answer(w, http.StatusOK, container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{
			ID: c.ID, Name: "/" + c.Name, Created: c.Created.Format(time.RFC3339Nano), State: &state, HostConfig: c.Host,
		},
		Config: c.Config,
	})
}

func (e *Engine) wait(w http.ResponseWriter, r *http.Request) {
	var over chan struct{}
	var c *Container
	e.on(func(_ http.ResponseWriter, _ *http.Request, found *Container) {
		c, over = found, found.removed
		if r.URL.Query().Get("condition") == string(container.WaitConditionNextExit) {
			over = make(chan struct{})
			c.exits = append(c.exits, over)
		}
	})(w, r)
	if c == nil {
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-over:
		e.Lock()
		defer e.Unlock()
		_ = json.NewEncoder(w).Encode(container.WaitResponse{StatusCode: int64(c.Exit.ExitCode)})
	case <-r.Context().Done():
	case <-e.over:
	}
}

func (e *Engine) logs(w http.ResponseWriter, _ *http.Request, _ *Container) {
	const line = "server: last words\n"
	_, _ = io.WriteString(w, "\x02\x00\x00\x00\x00\x00\x00"+string(rune(len(line)))+line)
}

// archive answers with the type of a file, and, to GET, with the file.
func (e *Engine) archive(w http.ResponseWriter, r *http.Request, c *Container) {
	path := filepath.Join(c.Root, r.URL.Query().Get("path"))
	info, err := os.Lstat(path)
	if err != nil {
		refuse(w, fmt.Errorf("%w: %w", cerrdefs.ErrNotFound, err))
		return
	}
	target, _ := os.Readlink(path)
	stat, _ := json.Marshal(container.PathStat{Name: info.Name(), Size: info.Size(), Mode: info.Mode(), Mtime: info.ModTime(), LinkTarget: target})
	w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(stat))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead || !info.Mode().IsRegular() {
		return
	}
	data, _ := os.ReadFile(path)
	archive := tar.NewWriter(w)
	_ = archive.WriteHeader(&tar.Header{Name: info.Name(), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
	_, _ = archive.Write(data)
	_ = archive.Close()
}

// unpack makes the directories and files of an archive, and all directories above them.
func (e *Engine) unpack(w http.ResponseWriter, r *http.Request, c *Container) {
	dir := filepath.Join(c.Root, r.URL.Query().Get("path"))
	for archive := tar.NewReader(r.Body); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			w.WriteHeader(http.StatusOK)
			return
		}
		if err != nil {
			refuse(w, fmt.Errorf("%w: %w", cerrdefs.ErrInvalidArgument, err))
			return
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			var data []byte
			if data, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, data, fs.FileMode(header.Mode))
			}
		}
		if err != nil {
			refuse(w, err)
			return
		}
	}
}
