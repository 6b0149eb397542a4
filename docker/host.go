// Package docker keeps sandboxes: containers with a server in them that runs
// the actions of an agent.
//
// It knows containers and not actions. What is said to a server goes through a
// connection that Sandbox.Dial opens, and is said by the Agent that the program
// brings along. What is fixed at a sandbox's birth stands in labels of its
// container; its key stands in a directory of this host that only the
// controller's user can open.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/system"
)

// DialFunc opens a connection to the server of one sandbox. ctx bounds the
// opening.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Agent speaks to the server of a sandbox. It must be safe for concurrent use.
type Agent interface {
	// Ready returns nil as soon as a real command ran in the sandbox's shell,
	// or, where nobody claimed it yet and the key is empty, as soon as one could.
	// It may try again until ctx ends.
	Ready(ctx context.Context, dial DialFunc, key string) error
	// Claim binds the sandbox to its owner. The same claim may be made again;
	// another one fails with ErrClaimed.
	Claim(ctx context.Context, dial DialFunc, claim Claim) error
	// Renew gives the server a deadline, ttl from now; 0 means none.
	Renew(ctx context.Context, dial DialFunc, key string, ttl time.Duration) error
	// Status asks what changes while a sandbox lives.
	Status(ctx context.Context, dial DialFunc, key string) (Status, error)
}

// Claim is what binds a sandbox to its owner, and the limits that count from
// then on; they replace those the server was started with.
type Claim struct {
	Ticket     string // shows that the claimer may; empty for a sandbox that asks for none
	Key, Owner string
	Env        map[string]string
	TTL, Idle  time.Duration // 0: none
}

// Status is what a server says of itself.
type Status struct {
	Busy     bool      // an action is running
	Claimed  bool      // it has an owner
	Since    time.Time // of the last action's end, or of the start
	Deadline time.Time // zero: none
}

// Config says how a Host is kept.
type Config struct {
	// Engine is the address of the Docker engine. Default: what the docker
	// command would use.
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
	// Agent speaks to the servers. Required.
	Agent Agent
	// Transport is "socket", "port", or "" for a socket where it can be had.
	Transport string
	// CopyServer copies the server into each container instead of keeping it in
	// a volume.
	CopyServer bool
	// ReadyTimeout bounds the wait for a started sandbox. Default one minute.
	ReadyTimeout time.Duration
	// PullOutput gets the engine's report of a pull, a JSON value per line.
	// Default: thrown away.
	PullOutput io.Writer
	// Progress is told before each step of a creation or claim what is waited
	// for next. It must be safe for concurrent use.
	Progress func(id string, state State, waiting string)
	// Logger gets what happens in the background. Default: nothing.
	Logger *slog.Logger
}

// Host is a machine with a Docker engine and the sandboxes on it. All methods
// may be called concurrently, also by several processes with one state
// directory.
type Host struct {
	engine     engine
	config     Config
	state      *stateDir
	controller string // who this is, in labels
	slots      chan struct{}
	view       hostView

	mu     sync.Mutex
	facts  *facts            // of the engine, once it answered
	hashes map[string]server // by architecture
}

// facts are what had to be asked of the engine.
type facts struct {
	socket    bool // a directory of this host can be mounted, and its socket reached
	serverUID int  // what uid 0 of a sandbox is on this host
	cpus      int  // 0: the engine does not say
}

// Open prepares for the engine and opens the state directory. It does not
// speak to the engine: that may be down for now.
func Open(config Config) (*Host, error) {
	client, err := connect(config.Engine)
	if err != nil {
		return nil, err
	}
	return open(config, client, client.DaemonHost())
}

func open(config Config, engine engine, address string) (*Host, error) {
	if config.Agent == nil {
		return nil, errors.New("opening the host: no agent to speak to the servers")
	}
	config.Prefix = orElse(config.Prefix, "actiond-")
	config.ReadyTimeout = orElse(config.ReadyTimeout, time.Minute)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Progress == nil {
		config.Progress = func(string, State, string) {}
	}
	if config.PullOutput == nil {
		config.PullOutput = io.Discard
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9]*-$`).MatchString(config.Prefix) {
		return nil, fmt.Errorf("opening the host: prefix %q must be a lowercase word with a dash at its end", config.Prefix)
	}
	switch config.Transport {
	case "", "socket", "port":
	default:
		return nil, fmt.Errorf("opening the host: transport %q: socket or port", config.Transport)
	}
	config.StateDir = orElse(config.StateDir, defaultStateDir())
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
		engine: engine, config: config, state: state, controller: controller,
		// 0.24 core-seconds go into a creation: more at once only wait longer.
		slots:  make(chan struct{}, 2*runtime.NumCPU()),
		view:   view(config.StateDir, address),
		hashes: map[string]server{},
	}, nil
}

// defaultStateDir outlives a reboot, because stopped sandboxes do and their keys
// are in it.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/actiond"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "actiond")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "actiond-"+strconv.Itoa(os.Geteuid()))
	}
	return filepath.Join(home, ".local", "state", "actiond")
}

// Close lets go of the state directory and of the connections to the engine.
// Sandboxes live on.
func (h *Host) Close() error {
	err := h.state.Close()
	if closer, ok := h.engine.(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// StateDir is the directory that only this user can open, as it was found.
func (h *Host) StateDir() string { return h.config.StateDir }

func (h *Host) info(ctx context.Context) (system.Info, error) {
	return safely(ctx, "asking the engine about itself", func() (system.Info, error) { return h.engine.Info(ctx) })
}

// learn asks the engine once for what decides how sandboxes are reached.
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
	learned := &facts{serverUID: serverUID(info), cpus: info.NCPU}
	// The server's socket is for its own user alone, and only root and a
	// rootless engine's user are that on this side.
	local := len(h.view.sockets) > 0 && runtime.GOOS == "linux" && info.OperatingSystem != "Docker Desktop"
	learned.socket = local && (os.Geteuid() == 0 || os.Geteuid() == learned.serverUID)
	switch {
	case h.config.Transport == "port":
		learned.socket = false
	case h.config.Transport == "socket" && !learned.socket:
		return nil, fmt.Errorf("a socket was asked for, and cannot be had with the engine at hand: it must run on this Linux host, and this program as root or as the user of a rootless engine")
	}
	h.facts = learned
	return learned, nil
}

// serverUID is what uid 0 of a container is outside.
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
