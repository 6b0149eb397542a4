// Package executor carries out actions: it gives each to the engine that can
// do it and turns their results into the texts that agents and clients know.
package executor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/browse"
	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/internal/keeper"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/executor/llm"
	"github.com/actiond/actiond/executor/mcp"
	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/executor/ports"
	"github.com/actiond/actiond/executor/process"
	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/executor/waiting"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/mark"
)

// Config says how an Executor works. WorkingDir is required and must exist.
type Config struct {
	// WorkingDir is where shells start.
	WorkingDir string
	// User is the user that commands and file accesses run as; nil means the user
	// of this process.
	User *identity.User
	// Shell is the program of the shells; empty means bash, or sh in an image without bash.
	Shell string
	// Env is the environment of the shells, as os.Environ gives it. Terminal,
	// home and user are set by the executor.
	Env []string
	// SoftTimeout is how long a command may be silent before it is answered
	// for; 0 means 10 seconds.
	SoftTimeout time.Duration
	// MaxSessions bounds the shells that are open; 0 means 512.
	MaxSessions int
	// Logger takes failures beside an action that succeeded; nil discards.
	Logger *slog.Logger
	// DraftModel merges the drafts of edits; nil means that they are merged by
	// rules, and that nothing leaves the sandbox.
	DraftModel *llm.Model
	// StateDir holds the state that survives a restart, out of the agent's reach; empty
	// means none.
	StateDir string
	// Temps records the temporary files that edits make in StateDir; nil records
	// nothing.
	Temps *files.Ledger
	// MaxFile bounds the files that are read and written whole, in bytes; 0 means 64 MiB.
	MaxFile int64
	// MaxUndo bounds the undo history where that is in memory, in bytes; 0 means 64 MiB.
	MaxUndo int64
	// Plugins are the parts that the launcher asked for, by their names in the
	// reference. nil means all; a list without "jupyter" switches run_ipython off,
	// and one with "agent_skills" imports these into each kernel.
	Plugins []string
	// Browser says that pages may be browsed.
	Browser bool
	// AllowRoot lets an operator run programs as root and other users. It needs a process of root's.
	AllowRoot bool
	// Workspace names the directory whose changes are attributed to actions; the zero value means none.
	Workspace WorkspaceConfig
	// Marks records the marks of processes that would outlive a crash of this one. New ends the processes
	// with marks that another process recorded; nil records nothing.
	Marks *mark.Ledger
}

const defaultSoftTimeout = 10 * time.Second // OpenHands' NO_CHANGE_TIMEOUT_SECONDS

// Executor does actions. Its methods may be called concurrently: actions of
// one session wait for each other, others do not.
type Executor struct {
	cfg      Config
	sessions *sessions
	editor   *edit.Editor
	notebook *notebook.Notebook // nil where it is switched off
	browser  *browse.Browser    // nil where it is switched off
	searcher *search.Searcher
	mcp      *mcp.Proxy
	programs *process.Engine
	others   *process.Engine // of programs of other users; nil where all run as the sandbox's
	files    fileWork
	python   *proc.Finder
	ports    *ports.Finder
	activity *waiting.Inspector
	listing  *waiting.Bound // of the ports, beside those looks
	hostname string
	turns    turns
	mark     string      // in the environment of all processes
	ready    atomic.Bool // after Start
	followed *Workspace
	contents func() (*store.Store, error) // opens the store once
	opened   atomic.Pointer[store.Store]
	owners   atomic.Pointer[map[string]string] // variables of Export
	network  atomic.Pointer[map[string]string] // and those for the network
}

// New returns an executor that has no session yet: each starts with its first
// action. ctx bounds the end of processes that an earlier server left.
// The caller must call Close.
func New(ctx context.Context, cfg Config) (*Executor, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxFile == 0 {
		cfg.MaxFile = edit.DefaultMaxReadSize
	}
	if cfg.SoftTimeout == 0 {
		cfg.SoftTimeout = defaultSoftTimeout
	}
	own := markName + "=" + rand.Text()
	endLeftovers(ctx, cfg.Marks, cfg.User, cfg.Logger)
	if err := cfg.Marks.Add(sessionsMark(own)); err != nil {
		cfg.Logger.WarnContext(ctx, "sessions would outlive a crash of the server", slog.Any("error", err))
	}
	ours := func(v string) bool {
		return strings.HasPrefix(v, markName+"=") || strings.HasPrefix(v, sessionsName+"=")
	}
	cfg.Env = append(slices.DeleteFunc(slices.Clone(cfg.Env), ours), own, sessionsMark(own))
	e := &Executor{cfg: cfg, mark: own}
	e.contents = sync.OnceValues(e.openStore)
	var err error
	if e.editor, err = e.openEditor(ctx); err != nil {
		return nil, err
	}
	hostname, _ := os.Hostname()
	e.hostname, _, _ = strings.Cut(hostname, ".")
	e.notebook, e.searcher, e.mcp = newNotebook(cfg), newSearcher(cfg.User), newMCP(cfg)
	e.browser = newBrowser(cfg) //nolint:contextcheck // ctx bounds the wait for leftovers
	e.programs = process.New(process.Config{Env: withoutSessions(environment(cfg.Env, cfg.User, nil)), User: cfg.User, Marks: cfg.Marks})
	e.files, e.python = newFileWork(), proc.NewFinder("python", cfg.User)
	e.ports, e.activity = &ports.Finder{User: cfg.User, Mark: own}, waiting.New(cfg.User)
	e.listing = waiting.NewBound(waiting.MaxLooks, waiting.LookTime)
	if cfg.AllowRoot {
		e.others = process.New(process.Config{AnyUser: true, Marks: cfg.Marks})
	}
	e.network.Store(&map[string]string{})
	e.followed = newWorkspace(workspaceDeps{
		logger: cfg.Logger, user: cfg.User, mark: own, contents: e.contents, needed: e.editor.Needs, idle: e.idleRoots,
	}, cfg.Workspace)
	e.sessions = newSessions(bash.Config{
		Program: cfg.Shell, Dir: cfg.WorkingDir, Env: environment(cfg.Env, cfg.User, nil), User: cfg.User,
		List: e.names,
		Slow: func(ctx context.Context, limit time.Duration) {
			cfg.Logger.WarnContext(ctx, "the start files of a shell did not end in time, and the shell goes on without them",
				slog.Duration("limit", limit))
		},
	}, cmp.Or(cfg.MaxSessions, defaultMaxSessions))
	return e, nil
}

// openEditor returns the editor, whose history uses the store of contents if there is one.
func (e *Executor) openEditor(ctx context.Context) (*edit.Editor, error) {
	cfg := edit.Config{
		Root: e.cfg.WorkingDir, StateDir: e.cfg.StateDir, Temps: e.cfg.Temps, User: e.cfg.User, MaxReadSize: e.cfg.MaxFile, MaxMemory: e.cfg.MaxUndo,
		Reclaim: func() error { return e.followed.reclaim() },
		Older: func(edits int) {
			e.cfg.Logger.InfoContext(ctx, "the undo history of an earlier version was removed", slog.Int("edits", edits))
		},
		Link: e.warnOfLink,
		PutBack: func(path string, err error) {
			if err != nil {
				e.cfg.Logger.WarnContext(ctx, "a file that was being written when the server ended may be torn",
					slog.String("path", path), slog.Any("error", err))
				return
			}
			e.cfg.Logger.InfoContext(ctx, "a file that was being written when the server ended has its old content again",
				slog.String("path", path))
		},
	}
	if e.cfg.Workspace.StateDir != "" {
		cfg.Contents = e.contents
	}
	return edit.New(cfg)
}

// Start starts the default session, unless an action has, and returns when it is
// ready: from then on Ready returns nil. ctx bounds the wait. Other methods may be
// called meanwhile, but Close only after ctx has ended.
func (e *Executor) Start(ctx context.Context) error {
	if e.followed.Unfinished() { // nothing of the tree is to be believed before
		e.followed.Await(ctx)
	}
	_, err := e.sessions.get(ctx, "")
	for errors.Is(err, keeper.ErrClosed) && ctx.Err() == nil { // by Export, or by a request
		_, err = e.sessions.get(ctx, "")
	}
	if err != nil {
		return fmt.Errorf("starting the default session: %w", err)
	}
	e.ready.Store(true)
	e.followed.Begin() // not before: it would take time from the start
	return nil
}

// Workspace is the directory that actions work on.
func (e *Executor) Workspace() *Workspace { return e.followed }

// Close ends all sessions and returns when their processes are gone.
func (e *Executor) Close() error {
	var others sync.WaitGroup
	if e.notebook != nil {
		others.Go(e.notebook.Close)
	}
	if e.browser != nil {
		others.Go(e.browser.Close)
	}
	others.Go(e.mcp.Close)
	others.Go(e.programs.Close)
	if e.others != nil {
		others.Go(e.others.Close)
	}
	e.sessions.closeAll()
	others.Wait()
	e.followed.close()
	e.python.Close()
	e.cfg.Marks.Remove(sessionsMark(e.mark))
	return errors.Join(e.editor.Close(), e.closeStore())
}

// Do carries out one action. ctx bounds the wait and never ends a command. The
// error is an *api.Error where the caller is wrong and nothing was done, the
// cause of ctx's end where the outcome is unknown, and anything else where the
// executor broke.
func (e *Executor) Do(ctx context.Context, req api.Request) (api.Observation, error) {
	return e.Watch(ctx, req, api.Watch{})
}

// Watch runs an action like Do and reports its progress. A run that must wait for its turn
// reports that, and begins with its turn; so does a cell, which waits for its kernel too. Other
// actions begin at once. Cells do not wait for the reader of their output, who gets the number of
// bytes that were missed.
func (e *Executor) Watch(ctx context.Context, req api.Request, w api.Watch) (api.Observation, error) {
	turn, _ := w.Turn.(*turn)
	if turn == nil {
		turn = e.turns.enter(req)
		defer turn.Leave()
	}
	run, isRun := req.Action.(api.RunAction)
	_, isCell := req.Action.(api.IPythonAction)
	if !isCell && (!isRun || run.Reset) {
		if err := w.Begins(); err != nil {
			return nil, err
		}
		w.Begin = nil
	}
	switch a := req.Action.(type) {
	case api.RunAction:
		return e.run(ctx, a, req, w, turn)
	case api.ExecAction:
		return e.exec(ctx, a, req, w)
	case api.ReadAction:
		return e.withFiles(ctx, w, []string{a.Path}, req, func() api.Observation { return e.read(a, req) })
	case api.WriteAction:
		return e.withFiles(ctx, w, []string{a.Path}, req, func() api.Observation { return e.write(ctx, a, req) })
	case api.EditAction:
		if a.ImplSource == implDraft && e.cfg.DraftModel != nil { // it waits for the model most of the time
			return e.edit(ctx, a, req), nil
		}
		paths := []string{a.Path}
		if a.Patch != nil {
			paths = append(paths, edit.PatchedFiles(*a.Patch)...)
		}
		return e.withFiles(ctx, w, paths, req, func() api.Observation { return e.edit(ctx, a, req) })
	case api.GlobAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) {
			return onFiles(ctx, e.files, func() (api.Observation, error) { return e.glob(ctx, a, req) })
		})
	case api.GrepAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) {
			return onFiles(ctx, e.files, func() (api.Observation, error) { return e.grep(ctx, a, req) })
		})
	case api.ListAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) {
			return onFiles(ctx, e.files, func() (api.Observation, error) { return e.list(ctx, a, req) })
		})
	case api.IPythonAction:
		return e.ipython(ctx, a, req, w, turn)
	case api.BrowseAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) { return e.browse(ctx, a, req) })
	case api.BrowseInteractiveAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) { return e.interact(ctx, a, req) })
	case api.MCPAction:
		return cancellable(ctx, w, func(ctx context.Context) (api.Observation, error) { return e.callMCPTool(ctx, a, req) })
	case api.InvalidAction:
		return invalid(a), nil
	}
	return nil, api.BadRequest(fmt.Sprintf("action %q cannot be executed", req.Action.Kind()))
}

// limit is how long a request may take; false where it does not say, or says 0,
// which means no limit in the reference too.
func limit(req api.Request) (time.Duration, bool) {
	if req.Timeout == nil || *req.Timeout == 0 {
		return 0, false
	}
	return seconds(*req.Timeout), true
}

// seconds is f as a duration, the longest there is where it would not fit.
func seconds(f float64) time.Duration {
	switch {
	case f <= 0:
		return 0
	case f >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	}
	return time.Duration(f * float64(time.Second))
}

// errCancelled is the cause that ends the wait of an action that was cancelled.
var errCancelled = errors.New("the action was cancelled by a request")

// cancellable carries out an action that ends with its context, and returns an
// observation where that ends because the action is cancelled.
func cancellable(
	ctx context.Context, w api.Watch, do func(ctx context.Context) (api.Observation, error),
) (api.Observation, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer onCancel(w, func() { cancel(errCancelled) })()
	o, err := do(ctx)
	if errors.Is(err, errCancelled) {
		return api.ErrorObservation{Content: "The action was cancelled by a request while it ran.", Outcome: api.OutcomeCancelled}, nil
	}
	return o, err
}

// onCancel calls end, from another goroutine, once an action is cancelled. stop
// returns when it is over or no longer happens.
func onCancel(w api.Watch, end func()) (stop func()) {
	if w.Cancelled == nil {
		return func() {}
	}
	return channel.Go(func(over <-chan struct{}) {
		select {
		case <-w.Cancelled:
			end()
		case <-over:
		}
	})
}

// codeUnsupported is the machine word for actions that this sandbox cannot carry out.
const codeUnsupported = "unsupported"

// codeRefused is the machine word for a port on which no server listens.
const codeRefused = "connection_refused"

// Ready returns nil once a command can run at once, which is so after Start.
func (e *Executor) Ready() error {
	if !e.ready.Load() {
		return errStarting
	}
	return nil
}

var errStarting = errors.New("the start of the default session")

// Capabilities returns the kinds of actions that this sandbox can carry out.
func (e *Executor) Capabilities() map[string]api.Capability {
	shell := e.sessions.program()
	run := api.Capability{Available: true, Detail: shell}
	if !strings.HasSuffix(shell, "bash") {
		run.Detail += ": without bash, functions do not survive the end of a shell, and ~/.bashrc is not read"
	}
	files := api.Capability{Available: true, Detail: "in process"}
	page, interactive := e.browserCapabilities()
	return map[string]api.Capability{
		"run": run, "exec": {Available: true, Detail: "in pipes or on a terminal"}, "read": files, "write": files,
		"edit": files,
		"glob": files, "grep": files, "list_directory": files,
		"run_ipython":        e.notebookCapability(),
		"browse":             page,
		"browse_interactive": interactive,
		"call_tool_mcp":      e.mcpCapability(),
	}
}

// Export puts variables into the environment of every shell and kernel; they replace
// those of the same name. The default session begins anew with them. It must be called before
// the first action. The variables of the network are set under the others, in whatever case their
// names are, and for programs of other users, too.
func (e *Executor) Export(ctx context.Context, env, network map[string]string) error {
	e.setEnv(env, network)
	err := e.sessions.shells.Renew(ctx, defaultSession)
	if err != nil { // the next claim must not get these variables
		e.setEnv(nil, nil)
	}
	return err
}

// Exported returns the variables of Export, which the caller must not change.
func (e *Executor) Exported() map[string]string {
	if owners := e.owners.Load(); owners != nil {
		return *owners
	}
	return nil
}

func (e *Executor) setEnv(owners, network map[string]string) {
	network = without(network, owners)
	e.owners.Store(&owners)
	e.network.Store(&network)
	both := maps.Clone(network)
	maps.Copy(both, owners)
	variables := environment(e.cfg.Env, e.cfg.User, both)
	e.sessions.shells.SetEnv(variables)
	if e.notebook != nil {
		e.notebook.SetEnv(variables)
	}
	e.mcp.SetEnv(variables)
	e.programs.SetEnv(withoutSessions(variables))
	if e.browser != nil {
		e.browser.SetEnv(variables)
	}
}

// without returns the variables whose names the others have in neither case: programs read
// http_proxy and HTTP_PROXY, each its own first.
func without(variables, others map[string]string) map[string]string {
	folded := map[string]bool{}
	for name := range others {
		folded[strings.ToLower(name)] = true
	}
	left := map[string]string{}
	for name, value := range variables {
		if !folded[strings.ToLower(name)] {
			left[name] = value
		}
	}
	return left
}

// environment has the variables that shells start with. It holds nothing that changes from
// one command to the next, and no secret of the server. The owner's variables
// override the others.
func environment(env []string, user *identity.User, owners map[string]string) []string {
	set := map[string]string{
		"TERM": "xterm-256color",
		// A pager would wait for a person at every git log.
		"PAGER": "cat", "GIT_PAGER": "cat",
	}
	if user != nil {
		set["HOME"], set["USER"], set["LOGNAME"] = user.Home, user.Name, user.Name
	}
	maps.Copy(set, owners)
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if _, ours := set[name]; !ours && !secret(name) {
			out = append(out, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// secret reports whether a variable is the server's own.
func secret(name string) bool {
	switch name {
	case "SESSION_API_KEY", "OH_SESSION_API_KEYS_0", "PWD", "OLDPWD", "SHLVL", "_":
		return true
	}
	return false
}
