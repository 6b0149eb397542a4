package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/docker"
)

// place is where sandboxes are: a Docker engine, or this machine itself.
type place interface {
	keeping
	files
	io.Closer
}

// keeping makes and ends sandboxes. The methods are those of docker.Host.
type keeping interface {
	Create(ctx context.Context, spec docker.Spec) (*sandbox, error)
	List(ctx context.Context) ([]*sandbox, error)
	Delete(ctx context.Context, s *sandbox) error
	Stop(ctx context.Context, s *sandbox, grace time.Duration) error
	Start(ctx context.Context, s *sandbox) error
	Renew(ctx context.Context, s *sandbox, deadline time.Time) error
	Prune(ctx context.Context, dryRun bool) ([]docker.Removal, error)
}

// files reads and writes the files of a sandbox, and its server's log. Paths in
// it are absolute.
type files interface {
	Logs(ctx context.Context, s *sandbox, o docker.LogOptions, stdout, stderr io.Writer) error
	WorkDir(ctx context.Context, s *sandbox) (string, error)
	Stat(ctx context.Context, s *sandbox, path string) (docker.FileInfo, error)
	CopyOut(ctx context.Context, s *sandbox, path string) (io.ReadCloser, error)
	CopyIn(ctx context.Context, s *sandbox, dir string, archive io.Reader) error
}

// sandbox is a sandbox of either place. Its Dial and Key are that place's.
type sandbox struct {
	*docker.Sandbox
	Dial docker.DialFunc
	Key  func() (string, error)
}

// client speaks to the sandbox's server. The caller must close it.
func (s *sandbox) client() (*client.Client, error) {
	switch s.State {
	case docker.Ready, docker.Busy, docker.Idle, docker.Starting:
	default:
		return nil, notRunning(s)
	}
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	return clientOver(s.Dial, key)
}

// notRunning is why something that needs a running sandbox cannot be done.
func notRunning(s *sandbox) error {
	return fmt.Errorf("%w: sandbox %s is %s; %s", errConflict, s.ID, s.State, advice(s))
}

// advice says how to bring a sandbox to where it takes actions.
func advice(s *sandbox) string {
	switch s.State {
	case docker.Stopped:
		return "start it with 'runtimectl start " + s.ID + "'"
	case docker.Paused:
		return "resume it with 'runtimectl resume " + s.ID + "'"
	}
	return "'runtimectl prune' removes what was left half done"
}

// placeFlags say where the sandboxes are.
type placeFlags struct {
	local    bool
	stateDir string
	server   string
}

// addPlace gives c, and every command below it, the flags that say where the
// sandboxes are.
func (p *program) addPlace(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&p.place.local, "local", false, "use processes of this machine instead of an engine's containers; isolates nothing")
	flags.StringVar(&p.place.stateDir, "state-dir", "", "keep keys and sockets in this `directory` (default: /var/lib/actiond for root,\n$XDG_STATE_HOME/actiond or ~/.local/state/actiond for others)")
	_ = c.MarkFlagDirname("state-dir") // the flag is there
}

// addServer gives c a flag for the program that is put into sandboxes.
func (p *program) addServer(c *cobra.Command) {
	c.Flags().StringVar(&p.place.server, "server", "", "put this `program` into sandboxes (default: server, beside runtimectl)")
}

// in opens the place that the flags name and does work there. change adapts what
// an engine is opened with; --local has no use for it.
func (p *program) in(work func(where place) error, change ...func(*docker.Config)) (err error) {
	var where place
	if p.place.local {
		where, err = p.openLocal()
	} else {
		var host *docker.Host
		host, err = p.openHost(change...)
		where = enginePlace{host}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, where.Close()) }()
	return work(where)
}

// openHost opens the engine.
func (p *program) openHost(change ...func(*docker.Config)) (*docker.Host, error) {
	if p.place.local {
		return nil, errEngineOnly
	}
	stateDir := p.place.stateDir
	if stateDir != "" {
		var err error
		if stateDir, err = filepath.Abs(stateDir); err != nil {
			return nil, fmt.Errorf("finding the state directory: %w", err)
		}
	}
	config := docker.Config{StateDir: stateDir, Agent: agent{}}
	for _, c := range change {
		c(&config)
	}
	return docker.Open(config)
}

// withServers is a change for open: it names the programs that are put into
// sandboxes, by architecture. The one beside this program may be followed by
// others for other machines, server-amd64 and server-arm64.
func (p *program) withServers() (func(*docker.Config), error) {
	program, err := findServer(p.place.server)
	if err != nil {
		return nil, err
	}
	servers := map[string]string{}
	others := []string{program + "-amd64", program + "-arm64", program}
	if p.place.server != "" {
		others = others[2:]
	}
	for _, path := range others {
		arch, err := architecture(path)
		switch {
		case err == nil:
			servers[arch] = path
		case path == program:
			return nil, err
		}
	}
	return func(c *docker.Config) { c.Servers = servers }, nil
}

// architecture is that of a program for Linux, in the engine's words.
func architecture(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("the server %s is no program for Linux: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		return "", fmt.Errorf("the server %s needs %s, which images may not have: build it with CGO_ENABLED=0", path, libraries[0])
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("the server %s is for %v: amd64 and arm64 are known", path, file.Machine)
}

// enginePlace is a Docker engine.
type enginePlace struct{ *docker.Host }

func ofEngine(s *docker.Sandbox) *sandbox { return &sandbox{s, s.Dial, s.Key} }

func (e enginePlace) Create(ctx context.Context, spec docker.Spec) (*sandbox, error) {
	s, err := e.Host.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return ofEngine(s), nil
}

func (e enginePlace) List(ctx context.Context) ([]*sandbox, error) {
	all, err := e.Host.List(ctx)
	list := make([]*sandbox, len(all))
	for i, s := range all {
		list[i] = ofEngine(s)
	}
	return list, err
}

func (e enginePlace) Delete(ctx context.Context, s *sandbox) error {
	return e.Host.Delete(ctx, s.Sandbox)
}

func (e enginePlace) Stop(ctx context.Context, s *sandbox, grace time.Duration) error {
	return e.Host.Stop(ctx, s.Sandbox, grace)
}

func (e enginePlace) Start(ctx context.Context, s *sandbox) error {
	return e.Host.Start(ctx, s.Sandbox)
}

func (e enginePlace) Renew(ctx context.Context, s *sandbox, deadline time.Time) error {
	return e.Host.Renew(ctx, s.Sandbox, deadline)
}

func (e enginePlace) Logs(ctx context.Context, s *sandbox, o docker.LogOptions, stdout, stderr io.Writer) error {
	return e.Host.Logs(ctx, s.Sandbox, o, stdout, stderr)
}

func (e enginePlace) Stat(ctx context.Context, s *sandbox, path string) (docker.FileInfo, error) {
	return e.Host.Stat(ctx, s.Sandbox, path)
}

func (e enginePlace) CopyOut(ctx context.Context, s *sandbox, path string) (io.ReadCloser, error) {
	return e.Host.CopyOut(ctx, s.Sandbox, path)
}

func (e enginePlace) CopyIn(ctx context.Context, s *sandbox, dir string, archive io.Reader) error {
	return e.Host.CopyIn(ctx, s.Sandbox, dir, archive)
}

func (e enginePlace) WorkDir(ctx context.Context, s *sandbox) (string, error) {
	details, err := e.Inspect(ctx, s.Sandbox)
	if err != nil {
		return "", err
	}
	return details.WorkDir, nil
}

// find is the sandbox that ref names, in either place.
func find(ctx context.Context, where place, ref string) (*sandbox, error) {
	all, err := where.List(ctx)
	if err != nil {
		return nil, err
	}
	facts := make([]*docker.Sandbox, len(all))
	for i, s := range all {
		facts[i] = s.Sandbox
	}
	found, err := docker.Find(facts, ref)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Sandbox == found {
			return s, nil
		}
	}
	return nil, docker.ErrNotFound
}

// on does work on the sandbox that ref names.
func (p *program) on(ctx context.Context, ref string, work func(where place, s *sandbox) error) error {
	return p.in(func(where place) error {
		s, err := find(ctx, where, ref)
		if err != nil {
			return err
		}
		return work(where, s)
	})
}

// onEach does work on each of the sandboxes that refs name. One that fails does
// not keep it from the others.
func (p *program) onEach(ctx context.Context, refs []string, work func(where place, s *sandbox) error) error {
	return p.in(func(where place) error {
		var failures []error
		for _, ref := range refs {
			s, err := find(ctx, where, ref)
			if err == nil {
				err = work(where, s)
			}
			failures = append(failures, err)
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failures...)
	})
}
