// Server runs the actions of an agent in this sandbox and answers each with an
// observation.
//
// The program takes the command line and the variables of the OpenHands action
// execution server, so that its runtimes can start this program in its place.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	_ "github.com/actiond/actiond/cmd/server/internal/pid1" // is the first process, before main
	"github.com/actiond/actiond/executor"
	osfiles "github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/memfile"
	"github.com/actiond/actiond/internal/processors"
	_ "github.com/actiond/actiond/internal/quietlog" // libraries may quote a web server
	"github.com/actiond/actiond/server"
	"github.com/actiond/actiond/server/files"
)

func main() {
	// Whatever the launcher left open is not the commands' business.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if os.Getenv("GOGC") == "" {
		// The heap is small and actions are short: collecting half as often makes
		// large ones faster, and the server gives memory back when it is idle.
		debug.SetGCPercent(200)
	}
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if os.Getenv("GOMEMLIMIT") == "" {
		if most := server.SandboxMemory(); most > 0 {
			// The commands get the rest, and the kernel ends the largest process when
			// memory runs out. The egress proxy is alone in its container.
			part := most / 4
			if len(os.Args) > 1 && os.Args[1] == "egress" {
				part *= 3
			}
			debug.SetMemoryLimit(int64(max(part, 16<<20))) //nolint:gosec // what the kernel counts
		}
	}
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, new(*usageError)):
		_, _ = fmt.Fprintf(os.Stderr, "server: %v\nRun 'server --help' for the flags.\n", err)
		os.Exit(2)
	default:
		_, _ = fmt.Fprintf(os.Stderr, "server: %v\n", err)
		os.Exit(1)
	}
}

// run carries out a command line: without a command, it serves until ctx ends, or the
// sandbox's time is over.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch {
	case len(args) == 1 && (name == "version" || name == "--version"):
		_, err := fmt.Fprintf(stdout, "actiond server %s\n", version())
		return err
	case name == "egress":
		return serveEgress(ctx, args[1:], stderr)
	case name == "lend":
		return lend(ctx, args[1:])
	case name == "lent":
		return awaitLent(ctx, args[1:])
	}
	return runServer(ctx, args, env, stderr)
}

// runServer begins where a server that crashed ended.
func runServer(ctx context.Context, args, env []string, stderr io.Writer) error {
	opts, err := parse(args, env, stderr)
	if err != nil {
		return err
	}
	if opts.keyInEnv && os.Geteuid() != 0 { // commands have the same user: they must not read it in /proc
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	memory, last, err := recall(opts)
	if err != nil {
		return err
	}
	if last == nil {
		if err := awaitStart(ctx, opts.startFIFO); err != nil {
			return err
		}
	}
	logger := newLogger(stderr, opts)
	var user *identity.User
	if last != nil { // the agent may have changed the files that prepare looks at since
		user = last.User
		useDir(opts, user, logger)
	} else if user, err = prepare(opts, logger); err != nil {
		return err
	}
	return open(ctx, opts, env, user, logger, memory, last)
}

// open opens the files and the engines of the server, listens, and serves.
func open(
	ctx context.Context, opts *options, environ []string, user *identity.User, logger *slog.Logger, memory *memfile.File, last *remembered,
) error {
	governor() // one processor from here on
	temps := openTemps(opts.stateDir, user, logger)
	defer func() { _ = temps.Close() }() // the files are removed at the next start
	env := lookup(environ)
	opened, marks, err := beginJournal(opts, env, logger) // it is read while the shell starts
	if err != nil {
		return err
	}
	defer func() { _ = marks.Close() }() // every write was checked
	defer func() {
		if actions, err := opened(); err == nil {
			_ = actions.Close() // every write was checked
		}
	}()
	if last != nil { // a refusal comes before the port is bound
		if _, err := opened(); err != nil {
			return err
		}
	}
	// Before the first shell reads files that an agent may have written: their programs
	// must not answer instead of the server, whose clients send it the key.
	listener, err := httpserver.Listen(ctx, opts.addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	exec, err := executor.New(ctx, executor.Config{
		Marks:      marks,
		WorkingDir: opts.workingDir, User: user, Env: environ,
		SoftTimeout: opts.softTimeout, StateDir: opts.stateDir, Temps: temps, Logger: logger, DraftModel: opts.model,
		Plugins: opts.plugins, Browser: opts.browser, MaxSessions: opts.maxSessions, AllowRoot: opts.allowRoot,
		MaxFile: portion(8), MaxUndo: portion(16), Workspace: workspace(opts, env),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := exec.Close(); err != nil {
			logger.ErrorContext(ctx, "closing the executor", slog.Any("error", err))
		}
	}()
	actions, err := opened()
	if err != nil {
		return err
	}
	cfg := serverConfig(opts, exec, user)
	cfg.Journal, cfg.Temps, cfg.Logger = actions, temps, logger
	if memory != nil {
		cfg.Remember = func(f server.Snapshot) error { return remember(memory, f, user, exec.Exported()) }
	}
	return serve(ctx, opts, cfg, exec, user, listener, last)
}

// awaitStart waits for a byte in the FIFO: the controller writes it after it has
// checked the mounts of this sandbox. The other side is open already. Where
// it is closed instead, the controller has died or found something else.
func awaitStart(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	fifo, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("waiting for permission to start: %w", err)
	}
	defer func() { _ = fifo.Close() }()
	defer context.AfterFunc(ctx, func() { _ = fifo.SetReadDeadline(time.Now()) })()
	if _, err := io.ReadFull(fifo, make([]byte, 1)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("waiting for permission to start, which the controller did not give: %w", err)
	}
	return nil
}

// openTemps removes the temporary files that a crash left, and opens the list of those
// that are made from now on; nil without a state directory, or where the list cannot be
// used, without which everything else works.
func openTemps(stateDir string, user *identity.User, logger *slog.Logger) *osfiles.Ledger {
	if stateDir == "" {
		return nil
	}
	temps, left, err := osfiles.OpenLedger(stateDir, user.Do)
	if err != nil {
		logger.Warn("a crash will leave temporary files behind", slog.Any("error", err))
	}
	for _, err := range left {
		logger.Warn("a temporary file of an earlier run is left", slog.Any("error", err))
	}
	return temps
}

// serve answers while the first shell starts, whose start files may take long: files and
// programs need no shell, and a command waits for its own. It ends where that shell cannot
// be started.
func serve(
	ctx context.Context, opts *options, cfg server.Config, exec *executor.Executor, user *identity.User, listener net.Listener,
	last *remembered,
) error {
	logger := cfg.Logger
	if last != nil {
		cfg.Inherited = &last.Server
	}
	srv := server.New(cfg)
	if last != nil {
		if err := srv.Resume(ctx, last.Env); err != nil {
			return err
		}
	}
	defer startViewer(ctx, opts, exec, user, cfg.Temps, logger)()
	addr := listener.Addr()
	logger.InfoContext(ctx, "serving", slog.String("addr", addr.String()), slog.String("version", version()),
		slog.Bool("key", opts.key != ""), slog.Bool("claim", opts.claim))
	if at, ok := addr.(*net.TCPAddr); ok && opts.key == "" && !opts.claim && !at.IP.IsLoopback() {
		logger.WarnContext(ctx, "every client that reaches this port can run commands: set SESSION_API_KEY or --session-key-file")
	}
	ctx, end := context.WithCancel(ctx)
	var starting sync.WaitGroup
	var failed error
	starting.Go(func() {
		err := exec.Start(ctx)
		if err == nil {
			err = srv.Remember() // a server that ends before is not started again
		}
		if err != nil && ctx.Err() == nil {
			failed = err
			end()
		}
	})
	err := srv.Serve(ctx, listener)
	end()
	starting.Wait()
	return errors.Join(failed, err)
}

// governor returns the Governor of this process.
var governor = sync.OnceValue(processors.New)

// serverConfig returns how a server uses the executor. The journal, the list of temporary files, the logger and
// the memory are missing in it.
func serverConfig(opts *options, exec *executor.Executor, user *identity.User) server.Config {
	var owner *files.Owner
	if c := user.Credential(); c != nil {
		owner = &files.Owner{UID: int(c.Uid), GID: int(c.Gid)}
	}
	return server.Config{
		Executor: exec, MCP: exec, Ports: exec, Clients: exec, Workspace: exec.Workspace(), As: exec.As,
		Key: opts.key, Claim: opts.claim, ClaimHash: opts.claimHash,
		TTL: opts.ttl, Idle: opts.idle, WorkingDir: opts.workingDir, DirProblem: opts.dirProblem, User: user.Username(), Owner: owner,
		Version: version(), TempDir: opts.stateDir,
		MaxBody:    portion(10),
		MaxActions: max(256, opts.maxSessions+64), // so that all sessions can work
		StageFile: func(ctx context.Context, path string) (server.Incoming, error) {
			in, err := exec.StageFile(ctx, path)
			if err != nil {
				return nil, err
			}
			return in, nil
		},
		RemoveTree: exec.RemoveTree, MakeDirectory: exec.MakeDirectory, MoveFile: exec.MoveFile,
		RemoveFile: exec.RemoveFile, WriteInPlace: exec.WriteInPlace,
		Attach: func(ctx context.Context, session string, types bool) (server.Terminal, error) {
			return exec.Attach(ctx, session, types)
		},
		Processors: governor(),
	}
}

// portion is 0, for a default of 64 MiB, or in a small sandbox that part of its memory: the work
// on a body takes up to six times its memory, and on a file up to five times.
func portion(part uint64) int64 {
	if most := server.SandboxMemory() / part; most < 64<<20 {
		return int64(most)
	}
	return 0
}

// nameBytes is about how much memory a name of the workspace takes.
const nameBytes = 400

// workspace says which directory is followed. In a small sandbox its names take a sixteenth of the memory at most, and
// its earlier states as much.
func workspace(opts *options, env func(string) string) executor.WorkspaceConfig {
	journal := journalDir(opts, env)
	cfg := executor.WorkspaceConfig{
		Dir: opts.track, Mode: opts.changes, StoreBytes: opts.storeBytes, Private: []string{opts.stateDir, journal}, MaxStateBytes: int(portion(16)),
	}
	if journal != "" { // also where nothing is followed: the undo history of edits lies there
		cfg.StateDir = filepath.Join(filepath.Dir(journal), "changes")
		cfg.Private = append(cfg.Private, cfg.StateDir)
	}
	if opts.changes == api.ChangesOff {
		cfg.Dir = ""
	}
	if most := server.SandboxMemory() / 16 / nameBytes; most > 0 && most < 500_000 {
		cfg.MaxNames = int(most)
	}
	return cfg
}

func newLogger(w io.Writer, opts *options) *slog.Logger {
	handlerOptions := &slog.HandlerOptions{Level: opts.logLevel}
	if opts.logJSON {
		return slog.New(slog.NewJSONHandler(w, handlerOptions))
	}
	return slog.New(slog.NewTextHandler(w, handlerOptions))
}
