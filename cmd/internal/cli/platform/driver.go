// Package platform reaches the sandboxes of the platform that the command line
// names: it opens the driver, finds sandboxes and speaks to their servers.
package platform

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// Platform selects the platform of the sandboxes of a command, and has the streams of the
// command line. Its methods may not be called concurrently before Choose returned.
type Platform struct {
	output.Streams

	Local      bool // the sandboxes are processes of this machine
	Kubernetes bool // they are Pods of a cluster

	Version     string                                    // of this program
	Caller      string                                    // the version of the runtimectl that replaced itself by this program, or empty
	OpenCluster OpenCluster                               // nil in a program without the driver of Kubernetes
	Become      func(program string, env ...string) error // replaces this process by the program, nil if it cannot be

	notReplaced  error // why runtimectl-kubernetes does not run in the place of this program
	on           string
	stateDir     string
	server       string
	uidRange     string
	cluster      string // CONTEXT[/NAMESPACE], empty: the current ones
	serverImage  string
	serverVolume bool
	readyTimeout time.Duration
}

// AddServer gives c a flag for the program that is put into sandboxes.
func (p *Platform) AddServer(c *cobra.Command) {
	c.Flags().StringVar(&p.server, "server", "",
		"put this `PROGRAM` into sandboxes (default: server, beside runtimectl or in ../lib/actiond)")
	c.Flags().StringVar(&p.serverImage, "server-image", "",
		"on Kubernetes, bring the server into Pods with this `IMAGE` (default: $"+serverImageVariable+")")
	c.Flags().BoolVar(&p.serverVolume, "server-volume", false,
		"on Kubernetes, mount that image in Pods instead of copying the server from it")
}

// AddCreation gives c the flags of commands that create sandboxes and are not part of a specification.
func (p *Platform) AddCreation(c *cobra.Command) {
	command.AddDuration(c.Flags(), &p.readyTimeout, "ready-timeout", "", 0, "give up a sandbox that does not start within this `TIME`: on Kubernetes the time until the\nnode runs it, with the image's pull (default 15m), elsewhere until its first command (1m, or 30s with --on local)")
	c.Flags().StringVar(&p.uidRange, "uid-range", "", fmt.Sprintf(
		"give sandboxes user ids of `FIRST-LAST` where nothing else decides\nthem (default: $%s or %v)", uidRangeVariable, docker.DefaultUserIDs))
}

// uidRangeVariable is the variable that --uid-range overrides.
const uidRangeVariable = "ACTIOND_UID_RANGE"

// userIDs is the range that the flag or the variable names, zero for the default.
func (p *Platform) userIDs() (docker.IDRange, error) {
	text, from := p.uidRange, "--uid-range"
	if text == "" {
		text, from = p.Getenv(uidRangeVariable), uidRangeVariable
	}
	if text == "" {
		return docker.IDRange{}, nil
	}
	ids, err := docker.ParseIDRange(text)
	if err != nil {
		return docker.IDRange{}, fmt.Errorf("%s: %w", from, err)
	}
	return ids, nil
}

// Options configure the driver that a command opens.
type Options struct {
	Servers  map[string]string // by architecture; nil where none is put into sandboxes
	Progress func(id string, state sandbox.State, waiting string)
	Pulling  func(status string, done, total int64)
	Logger   *slog.Logger
}

// Open opens the driver that the flags name. It is the only place that knows which
// drivers there are.
func (p *Platform) Open(o Options) (sandbox.Driver, error) {
	if p.Kubernetes {
		return p.openCluster(Cluster{
			Options: o, Name: p.cluster, ServerImage: cmp.Or(p.serverImage, p.Getenv(serverImageVariable)),
			ServerVolume: p.serverVolume, ReadyTimeout: p.readyTimeout,
		})
	}
	stateDir, err := p.StateDir()
	if err != nil {
		return nil, err
	}
	if p.Local {
		return local.Open(local.Config{
			StateDir: stateDir, Agent: agent.Agent{}, ReadyTimeout: p.readyTimeout, Server: func() (string, error) { return FindServer(p.server) },
		})
	}
	ids, err := p.userIDs()
	if err != nil {
		return nil, err
	}
	return docker.Open(docker.Config{
		StateDir: stateDir, Version: p.Version, Agent: agent.Agent{}, UserIDs: ids, ReadyTimeout: p.readyTimeout, Servers: o.Servers, Progress: o.Progress, Pulling: o.Pulling, Logger: o.Logger,
	})
}

// StateDir is the directory in which sandboxes are recorded.
func (p *Platform) StateDir() (string, error) {
	dir, err := filepath.Abs(cmp.Or(p.stateDir, p.Getenv(stateDirVariable), sandbox.DefaultStateDir()))
	if err != nil {
		return "", fmt.Errorf("finding the state directory: %w", err)
	}
	return dir, nil
}

// OpenFile opens a file of this machine for reading, on behalf of a specification,
// and refuses links that an agent may have made on the way.
func (p *Platform) OpenFile(name string) (file *os.File, err error) {
	if name, err = filepath.Abs(name); err != nil {
		return nil, err
	}
	opened, err := hostpath.Open(name, hostpath.NoLinks)
	if errors.Is(err, hostpath.ErrLink) {
		err = p.In(func(driver sandbox.Driver) error {
			if opener, ok := driver.(sandbox.Opener); ok {
				file, err = opener.Open(context.Background(), name) // the engine is asked for a bounded time only
			} else {
				opened, err = hostpath.Open(name, hostpath.OwnLinks)
			}
			return err
		})
	}
	if file != nil || err != nil {
		return file, err
	}
	defer func() { _ = opened.Close() }()
	return opened.Reader()
}

// WithServers is a change for open: it names the programs that are put into
// sandboxes, by architecture. The one beside this program may be followed by
// others for other machines, server-amd64 and server-arm64.
func (p *Platform) WithServers() (func(*Options), error) {
	if p.Kubernetes { // an image brings it
		return func(*Options) {}, nil
	}
	program, err := FindServer(p.server)
	if err != nil {
		return nil, err
	}
	servers := map[string]string{}
	others := []string{program + "-amd64", program + "-arm64", program}
	if p.server != "" {
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
	return func(o *Options) { o.Servers = servers }, nil
}

// architecture is that of a program for Linux, in the engine's words.
func architecture(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s is not a Linux executable: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		return "", fmt.Errorf("the server %s needs %s, which images may not have: build it with CGO_ENABLED=0", path,
			libraries[0])
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("the server %s is for %v: amd64 and arm64 are known", path, file.Machine)
}

// FindServer returns the server program: the given one, the one beside this program, or
// lib/actiond/server where this program is installed in bin.
func FindServer(given string) (string, error) {
	if given != "" {
		program, err := filepath.Abs(given)
		if err != nil {
			return "", fmt.Errorf("finding the server: %w", err)
		}
		return program, checkProgram(program, "--server wants a program")
	}
	program, err := beside("server")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		bin := filepath.Dir(program)
		if installed := filepath.Join(filepath.Dir(bin), "lib/actiond/server"); filepath.Base(bin) == "bin" && checkProgram(installed, "") == nil {
			return installed, nil
		}
	}
	return program, checkProgram(program, "build both programs with 'make build', or use --server")
}

// beside is the path of a program in the directory of this one.
func beside(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("finding %s beside this program: %w", name, err)
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

func checkProgram(program, advice string) error {
	info, err := os.Stat(program)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "run", Path: program, Err: fs.ErrPermission}
	}
	if err != nil {
		return fmt.Errorf("there is no server to start: %w; %s", err, advice)
	}
	return nil
}

// WarnLocal warns that --on local isolates nothing.
func (p *Platform) WarnLocal() {
	_, _ = fmt.Fprintf(p.Stderr, "warning: --on local isolates nothing: commands run on this machine with all rights of user %d\n", os.Geteuid())
}
