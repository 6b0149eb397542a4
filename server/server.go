package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/processors"
	"github.com/actiond/actiond/server/files"
)

// Executor carries out actions and has their sessions. All methods may be called
// concurrently.
type Executor interface {
	actions.Executor
	// Sessions lists the persistent shells and the kernels.
	Sessions() []api.Session
	// CloseSession ends one session; an *api.Error with status 404 when no session has
	// that name.
	CloseSession(ctx context.Context, name string) error
	// Ready returns nil when an action can run, otherwise the step that is waited for.
	Ready() error
	// Capabilities returns the kinds of actions that this sandbox can carry out.
	Capabilities() map[string]api.Capability
	// Export puts variables into the environment of every shell, the default
	// one included. Those for the network are for all programs, and under the others.
	// It is called at most once, before the first action.
	Export(ctx context.Context, env, network map[string]string) error
}

// Terminal is a person's view of a session. Its methods may be called
// concurrently.
type Terminal interface {
	// Read waits for output to show; io.EOF says that the session was
	// closed or the person typed that they leave.
	Read(ctx context.Context, p []byte) (int, error)
	// Type takes keystrokes; ctx bounds the wait for earlier ones.
	Type(ctx context.Context, p []byte) error
	// Resize asks for a size while this terminal is attached.
	Resize(rows, cols int)
	// Close detaches, without effect on running commands.
	Close()
}

// MCP keeps the MCP servers of the agent. Its methods may be called concurrently.
type MCP interface {
	// UpdateMCP replaces the servers. The problems name those that cannot work.
	UpdateMCP(servers []api.MCPServer) (problems []string, err error)
	// CheckMCP returns an *api.Error with status 404 where none were ever
	// configured.
	CheckMCP() error
	// OpenMCP connects a client to all of them: JSON-RPC messages both ways, those
	// to the client a line each. It must be read from and closed. The error is
	// an *api.Error with status 404 where none were ever configured.
	OpenMCP() (net.Conn, error)
}

// Ports knows the TCP ports that processes of the sandbox listen on. Its methods may
// be called concurrently.
type Ports interface {
	// Ports lists them.
	Ports() ([]api.Port, error)
	// DialPort connects to one; an *api.Error refuses it. ctx bounds the wait. The
	// connection may have a CloseWrite method.
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// Clients finds the processes of connections to the local proxy. Its methods may be called
// concurrently.
type Clients interface {
	// Client returns the process at the client's end, which stays open meanwhile, and the
	// actions that it belongs to. It takes two seconds at most.
	Client(client, proxy netip.AddrPort) api.Origin
}

// Config has the parts and limits of a Server. Executor and Attach are required.
type Config struct {
	Executor Executor
	// Attach gives a view of a session, which is started if it is not there;
	// an *api.Error refuses it. ctx outlasts the view.
	Attach func(ctx context.Context, session string, types bool) (Terminal, error)
	// MCP is nil where no MCP servers can be kept.
	MCP MCP
	// Ports is nil where no port is listed or forwarded.
	Ports Ports
	// Workspace is nil where no changes are followed.
	Workspace Workspace
	// Clients is nil where denials of the network policy are not attributed to
	// actions.
	Clients Clients
	// Journal records the actions; nil records in memory. The caller closes it after
	// Serve.
	Journal *journal.Journal
	// Logger takes one debug line per request and the errors; nil discards.
	Logger *slog.Logger
	// Key must come in the X-Session-API-Key header of every route that is not
	// open. Empty means no authentication. It is never logged.
	Key string
	// Claim lets the key come with a first call to /v1/claim instead; until
	// then only open routes answer. Key must be empty.
	Claim bool
	// ClaimHash is the SHA-256 of a ticket that a claim must bring in the header
	// of the key, and a new deadline in a header of its own. nil: any client that reaches the
	// server may claim it, and any with the key change its deadline.
	ClaimHash []byte
	// TTL and Idle end Serve: so long after New, and after so long a time
	// without work. 0 means never. A claim brings its own.
	TTL, Idle time.Duration
	// WorkingDir is the absolute path that relative paths of files are joined to, and User the
	// name of the sandbox's user, or its id. Both are in /server_info.
	WorkingDir string
	// DirProblem is why it is not the directory that was asked for; empty: it is.
	DirProblem string
	User       string
	// As runs a function, which starts no goroutines, with the rights of the
	// sandbox's user and returns its error; nil runs it as is. Every file that
	// a caller names is opened inside it.
	As func(func() error) error
	// StageFile begins a new content for a file, RemoveFile removes one and RemoveTree a
	// directory, MakeDirectory makes one and MoveFile moves either, all with the rights of the
	// sandbox's user; an *api.Error refuses it. nil: /v1/files only reads.
	StageFile  func(ctx context.Context, path string) (Incoming, error)
	RemoveFile func(ctx context.Context, path string, c api.FileConditions) (api.Observation, error)
	RemoveTree func(ctx context.Context, w api.Watch, path string, c api.FileConditions) (api.Observation, error)

	MakeDirectory func(ctx context.Context, path string, parents bool, mode *fs.FileMode) (api.Observation, error)
	MoveFile      func(ctx context.Context, from, to string, replace bool) (api.Observation, error)
	// WriteInPlace runs a function that writes over an open file, inside As, and puts the
	// old content back where that fails or this process ends; nil runs it as is.
	WriteInPlace func(w *os.File, write func() error) error
	// Inherited is the state that the server before kept by Remember; nil begins anew.
	Inherited *Snapshot
	// Remember keeps the state for a server that takes this one's place after a crash. It is
	// called one at a time, before a claim or a new limit is answered; nil keeps nothing.
	Remember func(Snapshot) error
	// ProxyAddress is the address of the local proxy of a sandbox with a network policy. Default
	// [front.Address].
	ProxyAddress string
	// TrustDir is where a sandbox with a network policy keeps the certificates of its authority, in a
	// directory that only this process's user may write to. Default /run/actiond-tls.
	TrustDir string
	// ImageRoot is the directory with the image's files, whose bundle of certificates gets that
	// authority. Default /.
	ImageRoot string
	// ResolverAddress is the address of the resolver, where the claim asks for one. Default
	// [front.ResolverAddress].
	ResolverAddress string
	// Processors is told of each request; nil: the runtime uses all processors.
	Processors *processors.Governor
	// Version is in /server_info and in the metrics.
	Version string
	// TempDir is where uploads are buffered: a state directory, which the agent
	// cannot fill. Empty means os.TempDir.
	TempDir string
	// ControlGroup is the directory at which the sandbox sees its control group. Default
	// /sys/fs/cgroup.
	ControlGroup string
	// Temps records the temporary files of uploads; nil records nothing.
	Temps *osfiles.Ledger
	// Owner is the sandbox's user, where this process may write files that As may
	// not; nil otherwise. Only requests with a key write such files.
	Owner *files.Owner
	// MaxBody bounds the body of execute_action in bytes, and those of all large ones,
	// and of large answers, that are worked on at a time; 0 means 64 MiB: the
	// largest honest action carries a whole file as text, and one that is
	// larger belongs into an upload.
	MaxBody int64
	// MaxUpload bounds the body of upload_file, and the unpacked size of a zip, in
	// bytes; 0 means 10 GiB.
	MaxUpload int64
	// MaxActions bounds the actions in flight, waiting ones included; 0 means 256.
	// Further ones are refused with 429 before anything ran.
	MaxActions int
}

const (
	defaultMaxBody    = 64 << 20
	defaultMaxUpload  = 10 << 30
	defaultMaxActions = 256

	// maxHeader holds a key and the longest path, all of it percent-encoded. It bounds
	// the memory of a connection that has not shown a key.
	maxHeader = 16 << 10
	// maxConns leaves most of a container's descriptors to the engines.
	maxConns = 1024
	// maxFollowers leaves connections to clients that start or cancel actions.
	maxFollowers = 512

	// releaseTime after the last action, the free heap goes back to the system.
	// The runtime would keep it for minutes, in every sandbox of a host.
	releaseTime = 5 * time.Second

	// drainTime and answerTime leave a second and a half of the five after
	// which launchers kill to the engines: running requests get the first, then
	// their wait is ended and they get the second to say so.
	drainTime  = 3 * time.Second
	answerTime = 500 * time.Millisecond
)

// errStopping is the cause that ends the wait of requests at shutdown.
var errStopping = actions.ErrStopping

// Server answers HTTP requests. It is an http.Handler; Serve adds the bounds
// on connections. It may be used concurrently and owns no goroutine outside
// of Serve.
type Server struct {
	cfg       Config
	log       *slog.Logger
	owner     owner
	life      *life
	handler   http.Handler
	metrics   *metrics
	usage     *usage
	actions   *actions.Manager
	inFlight  chan struct{} // one element per action in flight
	followers chan struct{} // one element per request that waits for an action which another one carries out
	watchers  chan struct{} // semaphore of requests that watch changes
	terminals chan struct{} // one element per terminal that is attached
	tunnels   *tunnels
	hungUp    chan struct{} // closed when terminals, tunnels and MCP clients are to end
	attached  sync.RWMutex  // read-locked by every terminal and tunnel
	started   time.Time
	last      atomic.Int64 // start of the last well-formed action, in ns since started
	draining  atomic.Bool
	memory    sync.Mutex // held while Config.Remember is called
	network   network
	mcp       mcpClients
	mcpTools  func() mcpHandlers
	tasks     tools.Tasks
	heartbeat time.Duration
	release   *time.Timer // gives memory back once actions have been over for a while
	reclaim   reclaimer
	shares    *actions.Memory // of large bodies and answers
	trees     *files.Trees
}

// New returns a server that is ready to serve.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.WriteInPlace == nil {
		cfg.WriteInPlace = func(_ *os.File, write func() error) error { return write() }
	}
	if cfg.As == nil {
		cfg.As = func(do func() error) error { return do() }
	}
	cfg.ControlGroup = cmp.Or(cfg.ControlGroup, controlGroupDir)
	cfg.TempDir = cmp.Or(cfg.TempDir, os.TempDir())
	cfg.MaxBody = cmp.Or(cfg.MaxBody, defaultMaxBody)
	cfg.MaxUpload = cmp.Or(cfg.MaxUpload, defaultMaxUpload)
	cfg.MaxActions = cmp.Or(cfg.MaxActions, defaultMaxActions)
	if cfg.Journal == nil {
		cfg.Journal, _ = journal.Open(journal.Config{}) // cannot fail in memory
	}
	s := &Server{
		cfg:       cfg,
		log:       cfg.Logger,
		owner:     owner{reading: make(chan struct{}, 1)},
		life:      newLife(cfg.TTL, cfg.Idle),
		inFlight:  make(chan struct{}, cfg.MaxActions),
		followers: make(chan struct{}, maxFollowers),
		watchers:  make(chan struct{}, maxWatchers),
		started:   time.Now(),
		terminals: make(chan struct{}, maxTerminals),
		tunnels:   newTunnels(),
		hungUp:    make(chan struct{}),
		heartbeat: heartbeatTime,
		shares:    actions.NewMemory(cfg.MaxBody),
		reclaim:   reclaimer{usage: runtimeUsage, give: giveBack},
	}
	s.trees = files.New(files.Config{
		As: cfg.As, Owner: cfg.Owner, Overrule: s.locked, Temps: cfg.Temps, WriteInPlace: cfg.WriteInPlace, MaxUnpacked: cfg.MaxUpload,
	})
	if cfg.Key != "" {
		s.owner.set(cfg.Key, "")
	}
	if cfg.Inherited != nil {
		s.inherit(*cfg.Inherited)
	}
	s.release = time.AfterFunc(releaseTime, giveBack)
	s.usage = newUsage(s.started)
	s.metrics = newMetrics(s)
	s.actions = actions.New(actions.Config{
		Journal: cfg.Journal, Executor: cfg.Executor, Workspace: cfg.Workspace, Memory: s.shares,
		Changed: s.metrics.changed,
		Ended: func(ctx context.Context, c *actions.Call, err error, took time.Duration) {
			s.metrics.action(ctx, c.Kind, err, took)
		},
		Collect: s.collectDenied,
	})
	s.mcpTools = sync.OnceValue(s.newMCPTools)
	s.handler = s.router()
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers the connections of l until ctx ends, or one of the limits of
// the sandbox's life is reached, and then stops within five seconds: no new
// action begins, terminals are hung up on, running requests get most of that
// time, and the remaining ones are answered that their end was not waited for,
// and closed. It closes l. The error is nil after either end. It may be called
// once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.release.Stop()
	defer s.network.close()
	ctx, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()
	watch.Go(reserveThreads)
	watch.Go(func() {
		if err := s.actions.Recover(ctx); err != nil {
			s.log.ErrorContext(ctx, "the end of a restore was not waited for", "error", err)
		}
	})
	watch.Go(func() {
		if reason := s.life.watch(ctx, s.running); reason != "" {
			s.log.InfoContext(ctx, "the sandbox ends", "reason", reason)
			end()
		}
	})
	base, stopWaiting := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWaiting(nil)
	srv := httpserver.NewServer(base, s.cfg.Processors.Handler(s), maxHeader, s.log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(httpserver.LimitListener(l, maxConns)) }()
	select {
	case err := <-served:
		_ = srv.Close() // the error that ended serving is the one to tell
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}

	s.draining.Store(true)
	close(s.hungUp)
	err := httpserver.Shutdown(ctx, srv, drainTime)
	if err != nil {
		stopWaiting(errStopping)
		s.actions.Stop()
		err = httpserver.Shutdown(ctx, srv, answerTime)
	}
	if err != nil {
		s.log.WarnContext(ctx, "closing connections that did not end in time", "error", err)
		_ = srv.Close() // nothing can be done about a connection that fails to close
	}
	s.actions.Stop()
	s.actions.Settle(answerTime)
	s.attached.Lock() // once the last terminal and tunnel ended; net/http no longer knows them
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	}
	return nil
}
