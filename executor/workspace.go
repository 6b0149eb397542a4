package executor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/changes"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// defaultUndoNames and defaultUndoBytes bound the workspaces whose contents are kept without being asked.
	defaultUndoNames = 50_000
	defaultUndoBytes = 256 << 20
	// stateGap is how many numbers are left out at each start, so that a state that was named and not recorded has a number
	// of its own.
	stateGap = 1000
	// defaultStepLimit is how long an action waits for a state: a file system may not answer. closeLimit is how long
	// close waits for the reading goroutine.
	defaultStepLimit = 10 * time.Second
	closeLimit       = time.Second
	// readTime is the first stretch of time for which contents are read in a row; a pause of the same length follows.
	readTime = 200 * time.Millisecond
	// quietTime is how long nothing changes before contents are read that a state left out.
	quietTime = time.Second
	// startUnit is the unit in which the kernel says when a process was started.
	startUnit = 10 * time.Millisecond
)

// WorkspaceConfig says which directory is followed, and how.
type WorkspaceConfig struct {
	// Dir is its absolute path; "" means that nothing is followed.
	Dir string
	// Mode is [api.ChangesUndo] or [api.ChangesFacts]; "" means undo for a workspace of at most 50,000 names and 256 MiB.
	Mode string
	// StateDir is for this process's user alone, and has what is kept of contents, and the states; without it changes cannot be
	// taken back.
	StateDir string
	// StoreBytes bounds the contents; 0 means 2 GiB, or half of a smaller file system.
	StoreBytes int64
	// Private are directories of the server, below which nothing may be followed.
	Private []string
	// MaxNames bounds the names that are followed; 0 means 500,000.
	MaxNames int
	// MaxWatches bounds the directories that are watched; 0 means 16,384, negative numbers mean none. Others are listed.
	MaxWatches int
	// MaxStateBytes bounds the memory of earlier states; 0 means 64 MiB. Those that are saved are read again.
	MaxStateBytes int
	// StepLimit is how long an action waits for the state; 0 means 10 s. Until a file system has answered then, states are
	// not known, and nothing waits.
	StepLimit time.Duration
}

// workspaceDeps are what a workspace has of the executor. The functions may be called concurrently.
type workspaceDeps struct {
	logger   *slog.Logger
	user     *identity.User
	mark     string                       // in the environment of all processes of the agent
	contents func() (*store.Store, error) // opens the store once
	needed   func(store.Sum) bool         // whether the undo history of edits needs a content
	// idle returns the processes that do nothing unless an action asks them: shells and kernels, whose children may do
	// something, and browsers and MCP servers.
	idle func() (sessions, others []int)
}

// Workspace knows the states of the directory that actions work on, by numbers. Its methods may be called
// concurrently. One goroutine makes the first state and reads contents, until close; another one looks at changed files
// during a step. Both outlast close only if a file system does not answer.
type Workspace struct {
	cfg    WorkspaceConfig
	deps   workspaceDeps
	ctx    context.Context //nolint:containedctx // ends with close
	cancel context.CancelFunc
	once   sync.Once
	work   sync.WaitGroup
	first  chan struct{} // closed once the first state is known, or will not be
	quiet  *time.Timer   // sends on more
	more   chan struct{} // contents are to be read, or kept

	tracker atomic.Pointer[changes.Tracker]
	info    atomic.Pointer[api.ChangesInfo]
	suspect atomic.Bool // an action may have left processes
	stuck   atomic.Bool // a look or a search takes longer than the limit, and no other one begins

	steps    atomic.Uint64 // that had something to look at
	stepping atomic.Int64  // their nanoseconds
	statsMu  sync.Mutex
	stats    changes.Stats

	mu        sync.Mutex
	recorded  uint64          // the last state that an earlier process recorded
	states    *changes.States // nil before the first one is known
	earlier   uint64          // the last state of an earlier process, if it is not the first one
	last      uint64          // the present state, with what belongs to it
	state     *changes.State
	exact     bool
	living    map[int]time.Duration // processes that lived at the last look, and when they were started
	starts    *proc.Starts          // since the last search for them
	rest      bool                  // no action ran since the last step
	behind    bool                  // the tracker may have a later state than the last one
	restoring bool
	processes proc.Scan // used by the one search that works
}

func newWorkspace(deps workspaceDeps, cfg WorkspaceConfig) *Workspace {
	cfg.StepLimit = cmp.Or(cfg.StepLimit, defaultStepLimit)
	w := &Workspace{cfg: cfg, deps: deps, first: make(chan struct{}), more: make(chan struct{}, 1), starts: proc.NewStarts()}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.quiet = time.AfterFunc(time.Hour, w.wake)
	w.quiet.Stop()
	w.off("")
	if cfg.Dir == "" {
		w.once.Do(func() { close(w.first) })
	}
	return w
}

// wake has contents read, or kept.
func (w *Workspace) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Dir is the directory, "" where none is followed.
func (w *Workspace) Dir() string { return w.cfg.Dir }

// Stats counts the directories that are watched, those that were listed, and the steps that had something to look at, with
// their time. The first two are the last known where a step works.
func (w *Workspace) Stats() (watches int, listed, steps uint64, stepping time.Duration) {
	w.statsMu.Lock()
	defer w.statsMu.Unlock()
	if t := w.tracker.Load(); t != nil {
		if s, ok := t.Stats(); ok {
			w.stats = s
		}
	}
	return w.stats.Watches, w.stats.Listed, w.steps.Load(), time.Duration(w.stepping.Load())
}

// After says which state was the last one that an earlier process recorded. It is called before Begin. The first state has a number
// of its own, unless it is that one.
func (w *Workspace) After(recorded uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded = recorded
}

// Earlier returns the last state of an earlier process that can be compared; 0 if there is none, or nothing changed since.
func (w *Workspace) Earlier() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.earlier
}

// Begin makes the first state, in the background. Further calls have no effect.
func (w *Workspace) Begin() {
	w.once.Do(func() {
		w.baselineIs("the workspace is listed for the first time: try again in a moment", api.BaselineRunning, 0, 0)
		w.work.Go(w.follow)
	})
}

// refuses reports whether a directory, by its path without links, may not be followed.
func (w *Workspace) refuses(dir string) bool {
	if dir == "/" {
		return true
	}
	for i, private := range append(slices.Clone(w.cfg.Private), "/proc", "/sys", "/dev") {
		if real, err := filepath.EvalSymlinks(private); err == nil {
			private = real
		}
		above, below := strings.HasPrefix(private+"/", dir+"/"), strings.HasPrefix(dir+"/", private+"/")
		if private != "" && (above || below && i < len(w.cfg.Private)) { // /dev/shm is a directory as any other
			return true
		}
	}
	var system unix.Statfs_t
	return unix.Statfs(dir, &system) == nil && slices.Contains(pseudo, int64(system.Type)) //nolint:unconvert // of another size elsewhere
}

// pseudo are the file systems whose files the kernel makes when they are read.
var pseudo = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
	unix.DEVPTS_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC,
}

// follow makes the first state, and reads or keeps contents when it is worth it.
func (w *Workspace) follow() {
	first := sync.OnceFunc(func() { close(w.first) })
	defer first()
	defer w.recovers()
	contents, why := w.openContents()
	tracker, err := changes.New(changes.Config{
		Root: w.cfg.Dir, User: w.deps.user, MaxNames: w.cfg.MaxNames, MaxWatches: w.cfg.MaxWatches, Store: contents, StateDir: w.planDir(contents),
		Refuses: w.refuses,
	})
	if errors.Is(err, changes.ErrRefused) {
		w.off(string(changes.WhyRoot))
		return
	}
	if err == nil {
		err = w.begin(tracker)
	}
	if err != nil {
		w.deps.logger.WarnContext(w.ctx, "changes of the workspace are not followed", slog.Any("error", err))
		w.off(err.Error())
		return
	}
	w.mu.Lock()
	closed := w.ctx.Err() != nil
	if !closed {
		w.tracker.Store(tracker)
	}
	files, bytes := w.state.Size()
	if why == "" && w.cfg.Mode == "" && (w.state.Names() > defaultUndoNames || bytes > defaultUndoBytes) {
		why = "the workspace is larger than 256 MiB or 50,000 names: start the server with --changes undo"
	}
	w.mu.Unlock()
	w.baselineIs(why, api.BaselineRunning, files, bytes)
	first()
	if closed {
		_ = tracker.Close() // it was only read
		return
	}
	for w.readOrKeep(tracker, why) && w.tracker.Load() != nil {
		w.baselineIs(why, api.BaselineDone, files, bytes)
		select {
		case <-w.more:
		case <-w.ctx.Done():
			return
		}
	}
}

// begin makes the first state.
func (w *Workspace) begin(tracker *changes.Tracker) error {
	states, err := changes.OpenStates(tracker, changes.StatesConfig{Dir: w.cfg.StateDir, MaxBytes: w.cfg.MaxStateBytes, Also: w.deps.needed})
	if err != nil {
		return err
	}
	var before *changes.State
	earlier := states.Earlier()
	if earlier > 0 {
		if before, err = states.Get(earlier); err != nil {
			w.deps.logger.WarnContext(w.ctx, "what changed while no server ran is not known", slog.Any("error", err))
		} else {
			tracker.Adopt(before)
		}
	}
	w.resume(tracker)
	state, err := tracker.Step()
	if err != nil {
		return errors.Join(err, tracker.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = states
	states.Skip(w.recorded, stateGap)
	if before != nil {
		c := changes.Compare(before, state, changes.Limits{})
		if c.Exact && c.Counts == (changes.Counts{}) && len(c.Ignored) == 0 && earlier >= w.recorded {
			w.present(states.Resume(state), state)
			return nil
		}
		w.earlier = earlier
	}
	w.keep(state)
	return nil
}

// readContents reads the contents that are not known yet, with pauses, so that it takes half of a processor at most; false once the
// workspace is closed. Stretches grow, since each begins with what cannot be read.
func (w *Workspace) readContents(tracker *changes.Tracker) bool {
	for limit := readTime; ; limit *= 2 {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, limit)
		err := tracker.ReadContents(ctx)
		cancel()
		if w.ctx.Err() != nil {
			return false
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return true // done, or the user's rights cannot be had: then what is unread is unsure
		}
		if channel.Sleep(w.ctx, time.Since(begun)) != nil {
			return false
		}
	}
}

// close stops following the directory. Steps return 0 then.
func (w *Workspace) close() {
	w.once.Do(func() { close(w.first) })
	w.cancel()
	w.mu.Lock()
	t := w.tracker.Swap(nil)
	w.starts.Close()
	w.quiet.Stop()
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the two goroutines
		w.work.Wait()
		if t != nil && w.NoUndo() == "" {
			_ = w.states.Save() // otherwise the next server knows less
		}
		if t != nil {
			_ = t.Close() // it was only read
		}
		close(ended)
	}()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// Await waits for the first state. It reports whether that is known, or will never be.
func (w *Workspace) Await(ctx context.Context) bool {
	w.Begin()
	select {
	case <-w.first:
	case <-ctx.Done():
	}
	return channel.Closed(w.first)
}

// Step returns the number of the present state, which is that of the last step if nothing changed; 0 where it is not
// known, or not in time. exact is false if something may have changed unseen. It allocates nothing if nothing changed.
func (w *Workspace) Step() (n uint64, exact bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, rest := w.tracker.Load(), w.rest
	w.rest = false
	if t == nil || w.stuck.Load() || w.restoring {
		return 0, false
	}
	if !w.find(rest) {
		w.behind = true
		return 0, false
	}
	if unchanged := t.Unchanged(); w.behind || len(w.living) > 0 || !unchanged {
		state := w.look(t.Step)
		if w.behind = state == nil; w.behind {
			return 0, false
		}
		w.moveTo(state)
	}
	return w.last, w.exact
}

// moveTo makes a state the present one. The caller holds mu.
func (w *Workspace) moveTo(state *changes.State) {
	if state == w.state {
		return
	}
	w.keep(state)
	if w.NoUndo() == "" {
		w.wake()
	}
	w.quiet.Reset(quietTime)
}

// look makes a state; nil if that fails, or takes too long. The caller holds mu.
func (w *Workspace) look(step func(pids ...int) (*changes.State, error)) *changes.State {
	begun := time.Now()
	defer func() {
		w.steps.Add(1)
		w.stepping.Add(int64(time.Since(begun)))
	}()
	living := slices.Sorted(maps.Keys(w.living))
	state, _ := bounded(w, func() *changes.State {
		state, err := step(living...)
		if err != nil {
			w.deps.logger.Warn("the workspace cannot be looked at", slog.Any("error", err))
			return nil
		}
		return state
	})
	return state
}

// bounded calls find in a goroutine of its own, and waits for its result in bounded time, and not beyond close; false if
// that was too short. Until find returns, w is stuck. The caller holds mu of w.
func bounded[T any](w *Workspace, find func() T) (result T, ok bool) {
	var found T
	over := make(chan struct{})
	broke := true
	var gone atomic.Bool // set by the end of the call, or by the end of the wait for it
	w.work.Go(func() {
		defer func() {
			if gone.Swap(true) {
				w.stuck.Store(false)
			}
		}()
		defer close(over)
		defer w.recovers()
		found = find()
		broke = false
	})
	timer := time.NewTimer(w.cfg.StepLimit)
	defer timer.Stop()
	select {
	case <-over:
		return found, !broke
	case <-timer.C:
	case <-w.ctx.Done():
	}
	w.stuck.Store(true)
	if gone.Swap(true) { // it has ended by now
		w.stuck.Store(false)
	}
	return result, false
}

// recovers stops following the directory if the goroutine that defers it panics: no action is to fail because of that.
func (w *Workspace) recovers() {
	if v := recover(); v != nil {
		w.deps.logger.Error("changes of the workspace are no longer followed", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		w.tracker.Store(nil)
		w.off("it broke")
	}
}

// keep gives a state its number, and makes it the present one. The caller holds mu.
func (w *Workspace) keep(state *changes.State) { w.present(w.states.Add(state), state) }

func (w *Workspace) present(n uint64, state *changes.State) {
	w.last, w.state, w.exact = n, state, state.Exact()
}

// Left reports whether processes of the agent live that were started before an action began, beside idle shells, kernels,
// browsers and MCP servers. sure says that no process was started just before, within the unit of the kernel's times. Left
// returns true if the processes cannot be found in time.
func (w *Workspace) Left(begun time.Time, sure bool) bool {
	since := proc.Uptime() - time.Since(begun)
	if sure {
		since -= startUnit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.find(false) || slices.ContainsFunc(slices.Collect(maps.Values(w.living)), func(start time.Duration) bool { return start <= since })
}

// Living reports whether processes of the agent lived at the last step, or could not be found in time.
func (w *Workspace) Living() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tracker.Load() != nil && (w.suspect.Load() || len(w.living) > 0)
}

// Rest says that no action runs: processes that were started meanwhile are the agent's only where others of it live.
func (w *Workspace) Rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = true
}

// find has the living processes of the agent known, and searches for them if some may have been started since the last
// search, unless rest says that they are not the agent's; false if that takes too long. The caller holds mu.
func (w *Workspace) find(rest bool) bool {
	started := w.starts.Since()
	if w.forgetDead(); rest && len(w.living) == 0 {
		started = false
	}
	if w.suspect.Swap(false) || started {
		_, ok := w.seek()
		return ok
	}
	return true
}

// seek searches for the processes of the agent, and when they were started; false if that takes too long: a process may keep others from
// reading its environment. The caller holds mu.
func (w *Workspace) seek() (found map[int]time.Duration, ok bool) {
	if w.ctx.Err() == nil && !w.stuck.Load() {
		found, ok = bounded(w, func() map[int]time.Duration {
			sessions, others := w.deps.idle()
			return w.processes.Living(sessions, others, w.deps.mark, w.deps.user)
		})
	}
	if !ok {
		w.suspect.Store(true)
		return nil, false
	}
	w.living = found
	return found, true
}

// forgetDead forgets the processes that ended. The caller holds mu.
func (w *Workspace) forgetDead() {
	maps.DeleteFunc(w.living, func(pid int, begun time.Duration) bool {
		p, lives := proc.Read(pid) // not where its parent was not told yet
		return !lives || p.BegunAt() != begun
	})
}

// leaves notes that an action left a process, with its id if it is known: that of the last job of its shell, or 0 for others.
func (w *Workspace) leaves(job int) {
	if job == 0 || !errors.Is(unix.Kill(job, 0), unix.ESRCH) {
		w.suspect.Store(true)
	}
}
