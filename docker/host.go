// Package docker keeps sandboxes: containers with a server in them that runs
// the actions of an agent.
//
// The package knows containers and not actions. Requests to a server go through a
// connection that Sandbox.Dial opens, and are made by the Agent that the program
// brings along. Facts that are fixed when a sandbox is created are in labels of its
// container; its key is in a directory of this host that only the
// controller's user can open.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/sandbox"
)

// Config says how a Host is kept.
type Config struct {
	// Engine is the address of the Docker engine. Default: that of the docker
	// command.
	Engine string
	// StateDir holds the sockets and keys, one directory per sandbox. Default:
	// /var/lib/actiond for root, $XDG_STATE_HOME/actiond or
	// ~/.local/state/actiond for others.
	StateDir string
	// Prefix begins the names of containers and volumes. Default "actiond-".
	Prefix string
	// Servers are paths of the static server binary by architecture ("amd64",
	// "arm64").
	Servers map[string]string
	// Version is the release of this program, such as v1.2.3: an egress proxy of an earlier one is
	// replaced. Default: none is.
	Version string
	// Agent speaks to the servers. Required.
	Agent sandbox.Agent
	// Transport is "socket", "port", or "" for a socket where it can be had.
	Transport string
	// CopyServer copies the server into each container instead of keeping it in
	// a volume.
	CopyServer bool
	// ReadyTimeout bounds the wait for a started sandbox. Default one minute.
	ReadyTimeout time.Duration
	// Roots is a file with the certificates of the authorities that verify hosts with secrets, in
	// PEM. Default: that of SSL_CERT_FILE, or the system's.
	Roots string
	// Pulling is called while an image is pulled, with the engine's word for the
	// step, and the bytes downloaded of all the bytes known so far; the total is 0
	// for a step that is not a download. It must be safe for concurrent use.
	Pulling func(status string, done, total int64)
	// UserIDs are those that sandboxes get whose id nothing else decides. Default
	// DefaultUserIDs.
	UserIDs IDRange
	// Progress is called before each step of a creation or claim, with the step
	// that is waited for next. It must be safe for concurrent use.
	Progress func(id string, state sandbox.State, waiting string)
	// Logger gets the events of background work. Default: none.
	Logger *slog.Logger
}

// Host is a machine with a Docker engine and the sandboxes on it. All methods
// may be called concurrently, also by several processes with one state
// directory.
type Host struct {
	engine     *dockerEngine
	config     Config
	state      *stateDir
	controller string // who this is, in labels
	slots      chan struct{}
	view       hostView
	listGPUs   func(context.Context) ([]string, error) // of this machine, nil: not known

	triesRemapped bool        // in tests: policies are kept on every engine
	egressCurrent atomic.Bool // the egress proxy was of this release, or of a later one

	mu     sync.Mutex
	facts  *facts            // of the engine, once it answered
	hashes map[string]server // by architecture
}

var (
	_ sandbox.Driver       = (*Host)(nil)
	_ sandbox.Watcher      = (*Host)(nil)
	_ sandbox.Renewer      = (*Host)(nil)
	_ sandbox.Starter      = (*Host)(nil)
	_ sandbox.Pauser       = (*Host)(nil)
	_ sandbox.Files        = (*Host)(nil)
	_ sandbox.Logger       = (*Host)(nil)
	_ sandbox.Meter        = (*Host)(nil)
	_ sandbox.Inspector    = (*Host)(nil)
	_ sandbox.Pruner       = (*Host)(nil)
	_ sandbox.ServerPruner = (*Host)(nil)
	_ sandbox.Images       = (*Host)(nil)
	_ sandbox.Doctor       = (*Host)(nil)
	_ sandbox.Opener       = (*Host)(nil)
	_ sandbox.Warmer       = (*Host)(nil)
	_ sandbox.Networker    = (*Host)(nil)
	_ sandbox.GPULister    = (*Host)(nil)
)

// facts are properties of the engine, which were asked of it.
type facts struct {
	local     bool   // the engine mounts directories of this host
	socket    bool   // and a socket in one can be reached
	serverUID int    // the uid on this host of uid 0 in a sandbox
	cpus      int    // 0: the engine does not say
	terminals bool   // a devpts with a limit can be mounted
	remapped  bool   // users of a sandbox are others on this host
	desktop   bool   // the engine runs in Docker Desktop's virtual machine
	runtime   string // the default
}

// Open prepares for the engine and opens the state directory. It does not
// speak to the engine: that may be down for now.
func Open(config Config) (*Host, error) {
	client, err := connect(config.Engine)
	if err != nil {
		return nil, err
	}
	if config.Agent == nil {
		return nil, errors.New("opening the host: no agent to speak to the servers")
	}
	config.Prefix = cmp.Or(config.Prefix, "actiond-")
	config.UserIDs = cmp.Or(config.UserIDs, DefaultUserIDs)
	if err := config.UserIDs.check(); err != nil {
		return nil, fmt.Errorf("opening the host: %w", err)
	}
	config.ReadyTimeout = cmp.Or(config.ReadyTimeout, time.Minute)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Progress == nil {
		config.Progress = func(string, sandbox.State, string) {}
	}
	if config.Pulling == nil {
		config.Pulling = func(string, int64, int64) {}
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9]*-$`).MatchString(config.Prefix) {
		return nil, fmt.Errorf("opening the host: prefix %q must be a lowercase word with a dash at its end", config.Prefix)
	}
	switch config.Transport {
	case "", "socket", "port":
	default:
		return nil, fmt.Errorf("opening the host: transport %q: socket or port", config.Transport)
	}
	config.StateDir = cmp.Or(config.StateDir, sandbox.DefaultStateDir())
	state, err := openState(config.StateDir)
	if err != nil {
		return nil, err
	}
	controller, err := state.controller()
	if err != nil {
		_ = state.Close()
		return nil, err
	}
	return &Host{
		engine: client, config: config, state: state, controller: controller,
		// 0.24 core-seconds go into a creation: more at once only wait longer.
		slots: make(chan struct{}, 2*runtime.NumCPU()),
		view:  view(config.StateDir, client.DaemonHost()), listGPUs: hostGPUs,
		hashes: map[string]server{},
	}, nil
}

// Close lets go of the state directory and of the connections to the engine.
// Sandboxes live on.
func (h *Host) Close() error {
	return errors.Join(h.state.Close(), h.engine.Close())
}

// StateDir is the directory that only this user can open, as it was found.
func (h *Host) StateDir() string { return h.config.StateDir }

func (h *Host) info(ctx context.Context) (system.Info, error) {
	return safely(ctx, "asking the engine about itself", func() (system.Info, error) { return h.engine.Info(ctx) })
}

// engineTime is the time on the engine's clock, by which it dates containers. The clock
// of this machine may differ from it by hours.
func (h *Host) engineTime(ctx context.Context) (time.Time, error) {
	info, err := h.info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now, err := time.Parse(time.RFC3339Nano, info.SystemTime)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the engine's time: %w", err)
	}
	return now, nil
}

// learn asks the engine once for the facts that decide how sandboxes are reached.
func (h *Host) learn(ctx context.Context) (*facts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.facts != nil {
		return h.facts, nil
	}
	info, err := h.info(ctx)
	if err != nil {
		return nil, err
	}
	learned := learnedFrom(info)
	// The server's socket is for its own user alone, and only root and a
	// rootless engine's user are that on this side.
	learned.local = len(h.view.sockets) > 0 && runtime.GOOS == "linux" && !learned.desktop
	learned.terminals = learned.local && limitsTerminals(info)
	learned.socket = learned.local && (os.Geteuid() == 0 || os.Geteuid() == learned.serverUID)
	switch {
	case h.config.Transport == "port":
		learned.socket = false
	case h.config.Transport == "socket" && !learned.socket:
		return nil, fmt.Errorf("this engine does not support a socket: it must run on this Linux host, and this program as root or as the user of a rootless engine")
	}
	h.facts = learned
	return learned, nil
}

// learnedFrom returns the facts that the engine says itself.
func learnedFrom(info system.Info) *facts {
	return &facts{
		serverUID: serverUID(info), cpus: info.NCPU, remapped: remapped(info), desktop: info.OperatingSystem == "Docker Desktop", runtime: info.DefaultRuntime,
	}
}

// limitsTerminals reports whether the engine, on this Linux host, can give each
// container a devpts of its own making. SELinux would let containers use only one
// that the engine labels.
func limitsTerminals(info system.Info) bool {
	selinux := slices.ContainsFunc(info.SecurityOptions, func(option string) bool { return strings.Contains(option, "name=selinux") })
	return !selinux && !remapped(info) && plainRuntime(info.DefaultRuntime)
}

// remapped reports whether the engine's containers have a user namespace.
func remapped(info system.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(option string) bool {
		return strings.Contains(option, "name=rootless") || strings.Contains(option, "name=userns")
	})
}

// serverUID is the user id on this host of uid 0 in a container.
func serverUID(info system.Info) int {
	for _, option := range info.SecurityOptions {
		switch {
		case strings.Contains(option, "name=rootless"):
			return os.Geteuid()
		case strings.Contains(option, "name=userns"):
			// The engine keeps the data of a remapped user in a directory of its own.
			uid, _, _ := strings.Cut(filepath.Base(info.DockerRootDir), ".")
			if id, err := strconv.Atoi(uid); err == nil {
				return id
			}
		}
	}
	return 0
}

// slot takes one of the places for creations, or waits for one.
func (h *Host) slot(ctx context.Context) (release func(), err error) {
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for one of %d places to create a sandbox: %w", cap(h.slots), context.Cause(ctx))
	}
}
