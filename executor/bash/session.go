package bash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash/screen"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/shellquote"
)

// Config says how the shells of a session are started. It is not changed once
// a session uses it.
type Config struct {
	// Program is the shell; empty means the first of bash and sh on the PATH
	// of Env.
	Program string
	// Dir is where the first shell starts; it must exist.
	Dir string
	// Env is the environment, as os.Environ gives it.
	Env []string
	// User runs the shell; nil means the user of this process.
	User *identity.User
	// List returns the names in the directory path, which starts from dir if it is
	// relative, with a slash behind those of directories. Attachments complete
	// paths by it; nil completes nothing.
	List func(ctx context.Context, dir, path string) ([]string, error)
	// Slow is called when the start files of a shell did not end within a limit, and a
	// shell without them takes its place; nil calls nothing.
	Slow func(ctx context.Context, limit time.Duration)
}

// Command is a command, input for one, or a request for more output.
type Command struct {
	// Text is the command or the input. Empty, Run waits for more output of the
	// command that runs.
	Text string
	// Input makes Text input of the running command, or a key such as "C-c".
	Input bool
	// Verbatim types Text with its white space: one line end at its end is Enter, which is added
	// where it has none. An empty input is Enter.
	Verbatim bool
	// KeyNames makes a text such as "UP" and "ctrl+c" a key; see [NamedKey].
	KeyNames bool
	// Several allows several commands on lines of their own.
	Several bool
	// Hidden keeps the text of the command out of the scroll-back of attachments.
	Hidden bool
	// Soft is how long output may fall silent before Run answers; 0 means forever.
	Soft time.Duration
	// Hard is how long Run waits in all; negative means forever.
	Hard time.Duration
	// Queue is called before a Run that must wait for its turn waits; nil calls nothing.
	Queue func()
	// Begin is called before Run does anything. Its error ends Run, which then did
	// nothing and returns an error that wraps it and ErrNotBegun. nil calls nothing.
	Begin func() error
	// AwaitsInput is asked while there is no output whether the command waits for input,
	// more and more seldom; Run returns once it says so. nil is not asked.
	AwaitsInput func() bool
	// Output gets the raw output between Start and End of the result as it comes, in
	// order and once. It holds up the session: it must return soon and not call it. Data
	// is valid during the call only. nil tells nothing.
	Output func(Chunk)
	// Cancelled is closed to end the command, or, of a Run that waits for a command of
	// another, the wait. nil never is.
	Cancelled <-chan struct{}

	// Waits is called when Run begins to wait for the end of a command; nil is not.
	Waits func()

	sequence []byte           // of the key that Text names; nil for text and control keys
	began    time.Duration    // when Run was called, as [proc.Uptime] returns it
	over     <-chan time.Time // the end of Hard; nil for none
}

// starts sets when the wait begins and ends.
func (c *Command) starts() {
	c.began = proc.Uptime()
	if until := proc.Deadline(c.began, c.Hard); until != proc.Never {
		c.over = time.After(max(0, until-c.began))
	}
}

// Outcome is the reason why Run returned.
type Outcome int

// The outcomes. Only Completed has a status.
const (
	// Completed: the command ended.
	Completed Outcome = iota
	// Silent: no output for the soft limit. The command runs on.
	Silent
	// TimedOut: the hard limit is over. The command runs on.
	TimedOut
	// Refused: another command still runs; nothing was done.
	Refused
	// NothingToPoll: there is no command whose output could be waited for.
	NothingToPoll
	// NothingToType: there is no command that could take input.
	NothingToType
	// Multiple: the text holds several commands; nothing was done.
	Multiple
	// Abandoned: the wait for another Run's command was cancelled. The command runs on.
	Abandoned
	// AtInput: AwaitsInput says that the command waits for input. The command runs on.
	AtInput
)

// Result is the answer of Run.
type Result struct {
	Outcome Outcome
	// Output is the text that a person would have seen since the last answer.
	Output string
	// Omitted counts the lines before Output that are no longer kept.
	Omitted int
	// Continued says that an earlier answer was about the same command.
	Continued bool
	// Status is $? of a completed command; 128 and the signal's number for a
	// shell that was killed; unknown, -1, where the shell could not report it.
	Status int
	// Background is $!, -1 if there was no background job.
	Background int
	// Dir is the shell's working directory after the command.
	Dir string
	// Path is the shell's PATH after the command.
	Path string
	// Key is the letter of the key that was pressed, "" for none.
	Key string
	// Restarted says how the shell ended, if it had to be started anew since
	// the last answer (or will be, for the next command); "" otherwise.
	Restarted string
	// RestartReason is one word for that: "exited", "killed" by RestartSignal, or why this
	// process ended the shell: "no_report", "no_begin", "terminal_lost", "no_exec" or
	// "cancelled".
	RestartReason string
	RestartSignal syscall.Signal
	// SlowStart is the limit within which the start files did not end since the last
	// answer, so that the shell goes on without them; 0 where they did.
	SlowStart time.Duration
	// Cancelled is the last signal that was sent to end a cancelled command: "Ctrl-C",
	// "SIGTERM" or "SIGKILL", or "the end of its shell"; otherwise "".
	Cancelled string
	// Commands are the commands of a Multiple outcome.
	Commands []string
	// Start and End are the offsets in the session's output, in bytes since it
	// began, between which the raw bytes of Output lie.
	Start, End int64
}

// Session is a persistent shell: when its process ends, a new one takes its place
// with the directory, exported variables, functions and aliases of the old one, as
// far as they were saved.
//
// Its methods may be called concurrently. One Run waits at a time and the
// others queue; input, however, is typed at once. The session owns the
// goroutines of its shell and of a start; Close ends them.
type Session struct {
	cfg  Config
	turn chan struct{} // a semaphore: holds a token while no Run waits

	// pressing keeps the signal of a key and the line of a command apart. It is
	// taken before looking, and looking before mu.
	pressing sync.Mutex
	looking  sync.Mutex // held while a command is looked at, or its line is sent

	mu         sync.Mutex
	shell      *shell // the last one started
	alive      bool   // the shell has not ended
	closed     bool
	starting   *start // in progress; nil otherwise
	plain      bool   // the next shell starts without the personal files and the saved state, because one with them did not become ready
	screen     *screen.Screen
	log        outputLog
	drawn      int64     // offset where the screen was empty
	start      int64     // offset where the output of the next answer begins
	lastByte   time.Time // when the last output came
	current    *running
	seq        int64
	dir        string
	path       string
	flags      string
	status     int
	jobPID     int           // $!, -1 when there never was a background job
	state      string        // the last answer to save
	saving     chan struct{} // closed once the answer to a save came; nil unless it is awaited
	reportedAt time.Duration // as [proc.Uptime] returns it
	retired    string        // why this process ended the shell, "" if it did not
	died       death         // how the last shell ended, until an answer says so
	slow       time.Duration // the limit within which start files did not end, likewise
	prompt     string        // last line of the last answer, before typed text
	count      int64
	started    time.Time
	keyed      bool            // a key was pressed for the last command
	notes      []note          // the last commands, for those who attach
	sized      []*Attachment   // who asked for a size, the last one last
	listener   *outputListener // of the Run that has the turn, nil where it has none
	more       chan struct{}   // closed at the next change, nil unless a reader waits
	lookTimer  *time.Timer     // calls lookDue at lookAt, which is zero while it does not run
	lookAt     time.Time
}

// ErrClosed says that the session was closed.
var ErrClosed = errors.New("the session is closed")

// ErrNotBegun says that a command was not begun, because its Begin returned an error.
var ErrNotBegun = errors.New("the command was not begun")

// errStart says that a shell ended or fell silent before it was ready, and errLate
// that it fell silent.
var (
	errStart = errors.New("the shell did not become ready")
	errLate  = fmt.Errorf("%w in time", errStart)
)

// readyTime bounds the first start of a shell, its personal files included, and
// againTime any later one: two of those are tried within the usual soft limit.
const (
	readyTime = 10 * time.Second
	againTime = 4 * time.Second
)

// Start starts a session and returns when its shell has run a command. ctx
// bounds the wait.
func Start(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.Program == "" {
		cfg.Program = findShell(cfg.Env)
	}
	if cfg.Program == "" {
		return nil, errors.New("there is neither bash nor sh on the PATH: the image needs a shell")
	}
	s := &Session{
		cfg: cfg, turn: make(chan struct{}, 1), screen: screen.New(terminalCols, terminalRows),
		dir: cfg.Dir, jobPID: -1, started: time.Now(),
	}
	s.turn <- struct{}{}
	if err := s.revive(ctx, nil); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// findShell looks for bash, then sh, as exec would with env.
func findShell(env []string) string {
	path := proc.EnvPath(env, "/usr/local/bin:/usr/bin:/bin") + ":/usr/bin:/bin"
	if bash := proc.LookPath("bash", path); bash != "" {
		return bash
	}
	return proc.LookPath("sh", path)
}

// start is the start of a shell, in a goroutine of its own: it goes on without a
// caller whose time is over.
type start struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it ended; err holds then
	err    error
}

// errSlow says that the limit of a command ended while a shell started.
var errSlow = fmt.Errorf("%w in the time of the command, which did not run", errStart)

// revive makes sure that there is a living shell. ctx and over bound the wait; the
// start goes on. The caller has the turn.
func (s *Session) revive(ctx context.Context, over <-chan time.Time) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	p := s.starting
	if p == nil && s.alive {
		s.mu.Unlock()
		return nil
	}
	if p == nil {
		p = &start{done: make(chan struct{})}
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		p.cancel, s.starting = cancel, p
		go func() {
			p.err = s.relaunch(ctx)
			cancel(nil)
			s.mu.Lock()
			s.starting = nil
			s.mu.Unlock()
			close(p.done)
		}()
	}
	s.mu.Unlock()
	return p.wait(ctx, over)
}

// wait waits for the end of a start; it returns at once for nil.
func (p *start) wait(ctx context.Context, over <-chan time.Time) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return p.err
	case <-over:
		return errSlow
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// relaunch starts a shell. The personal files, or the saved state, may end
// it, or keep it from becoming ready in time: later tries do without.
func (s *Session) relaunch(ctx context.Context) error {
	for {
		s.mu.Lock()
		plain, died, limit := s.plain, s.died, readyTime
		if plain {
			s.state = ""
		}
		if s.count > 0 {
			limit = againTime
		}
		s.mu.Unlock()
		err := s.launch(ctx, !plain, limit)
		again := err != nil && !plain && ctx.Err() == nil && !errors.Is(err, exec.ErrNotFound)
		late := again && errors.Is(err, errLate)
		s.mu.Lock()
		s.plain = again || plain && err != nil
		if late { // its end says nothing
			s.died, s.slow = died, limit
		}
		s.mu.Unlock()
		if late && s.cfg.Slow != nil {
			s.cfg.Slow(ctx, limit)
		}
		if !again {
			return err
		}
	}
}

// launch starts a shell and waits until it has run its first commands, at most for limit.
// personal says whether it reads the user's own files.
func (s *Session) launch(ctx context.Context, personal bool, limit time.Duration) error {
	s.mu.Lock()
	dir, state := s.dir, s.state
	s.mu.Unlock()
	dir = existing(dir, s.cfg.Dir)
	cfg := s.cfg
	if !personal { // a POSIX shell reads $ENV by itself
		cfg.Env = slices.DeleteFunc(slices.Clone(cfg.Env), func(v string) bool { return strings.HasPrefix(v, "ENV=") })
	}
	sh, err := startShell(cfg.Program, dir, &cfg, s)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.shell, s.alive, s.retired = sh, true, ""
	ready := s.begin("", nil)
	s.applySize()
	s.mu.Unlock()
	lines := ""
	if files := sh.personalFiles(); personal && files != "" {
		lines += sh.eval(files, sh.term.name) + "; " + sh.resetPrompts() + "\n"
	}
	if state != "" {
		// The saved PWD may be older than the directory.
		lines += sh.eval(state, "/dev/null") + "; " + sh.call + "cd " + shellquote.Word(dir) + "\n"
	}
	lines += sh.setUp() + sh.command(sh.token, ready.seq, "", 0, sh.term.name)
	err = sh.send(lines)
	close(ready.sent)
	if err == nil {
		s.lookSoon(ready)
		err = s.awaitReady(ctx, sh, ready, limit)
	}
	s.mu.Lock()
	s.current = nil
	s.changed()
	s.restartScreen()
	closed := s.closed
	s.mu.Unlock()
	if err == nil && closed {
		err = ErrClosed
	}
	if err != nil {
		sh.close()
		return fmt.Errorf("starting %s: %w", s.cfg.Program, err)
	}
	return nil
}

func (s *Session) awaitReady(ctx context.Context, sh *shell, ready *running, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ready.done:
		s.mu.Lock()
		alive := s.alive && s.shell == sh
		s.mu.Unlock()
		if alive {
			return nil
		}
		<-sh.gone
	case <-sh.gone:
	case <-timer.C:
		return fmt.Errorf("%w, which is %v", errLate, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	status, _ := sh.exitStatus()
	return fmt.Errorf("%w: it ended with status %d", errStart, status)
}

// existing returns dir or the nearest directory above it that is there, or
// the fallback.
func existing(dir, fallback string) string {
	for d := dir; filepath.IsAbs(d); d = filepath.Dir(d) {
		if info, err := os.Stat(d); err == nil && info.IsDir() {
			if d == "/" && dir != "/" {
				break
			}
			return d
		}
		if d == "/" {
			break
		}
	}
	return fallback
}

// restartScreen begins a screen and a stretch of output. The caller holds mu.
func (s *Session) restartScreen() {
	s.screen.Restart()
	s.drawn = s.log.End()
	s.start = s.drawn
}

// saved keeps the state for a new shell.
func (s *Session) saved(sh *shell, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == sh {
		s.state = state
		s.settled()
	}
}

// settled says that no answer to a save is awaited. The caller holds mu.
func (s *Session) settled() {
	if s.saving != nil {
		close(s.saving)
		s.saving = nil
	}
}

// stateTime bounds the wait for the answer to a save, which comes before the next command.
const stateTime = 2 * time.Second

// Left returns the directory in which the last command left the shell, and a script that restores what can be saved of
// its state then, see [Session].
func (s *Session) Left(ctx context.Context) (dir, state string) {
	s.mu.Lock()
	saving := s.saving
	s.mu.Unlock()
	if saving != nil {
		select {
		case <-saving:
		case <-time.After(stateTime):
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir, s.state
}

// death is how a shell ended; zero where none did.
type death struct {
	text   string // for people
	reason string
	signal syscall.Signal
}

// ended notes the end of the shell, which ends the current command too.
func (s *Session) ended(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell != sh || !s.alive {
		return
	}
	s.alive = false
	s.settled()
	status, signal := sh.exitStatus()
	switch {
	case s.retired != "":
		s.died, status = death{text: s.retired, reason: reasons[s.retired]}, unknownStatus
	case signal != 0:
		s.died = death{fmt.Sprintf("was killed by signal %d (%v)", signal, signal), reasonKilled, signal}
	default:
		s.died = death{text: fmt.Sprintf("exited with status %d", status), reason: reasonExited}
	}
	s.status, s.flags, s.jobPID = 0, "", -1
	if c := s.current; c != nil && !c.ended() {
		begun, _ := sh.readBegins(c.seq)
		c.unrun = !begun && (c.unrun || !c.begun && !(signal != 0 && sh.isRobbable()))
		if c.unrun && c.by != nil {
			c.by.say("the shell " + s.died.text + " before it began this line; a new one takes its place")
		}
		c.end(status, -1)
	}
	s.changed()
}

// Close ends the shell as closing its terminal would, and returns when it is
// gone. Processes that the shell's commands detached from it live on. A Run that waits
// returns ErrClosed or the end of its command.
func (s *Session) Close() {
	s.mu.Lock()
	sh, starting := s.shell, s.starting
	s.closed = true
	s.changed()
	s.mu.Unlock()
	if starting != nil {
		starting.cancel(ErrClosed)
		<-starting.done // its shell is closed
	}
	if sh != nil {
		sh.close()
	}
}

// Info is a snapshot of a session.
type Info struct {
	Program  string
	Busy     bool
	Dir      string
	PID      int // 0 while there is no shell
	Started  time.Time
	Commands int64
	Bytes    int64
}

// Info returns a snapshot of the session.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := Info{
		Program: s.cfg.Program, Dir: s.dir, Started: s.started, Commands: s.count, Bytes: s.log.End(),
		Busy: s.current != nil && !s.current.ended(),
	}
	if s.alive {
		info.PID = s.shell.process.Pid
	}
	return info
}

// applySize gives the terminal the size that was asked for last, or its own.
// The caller holds mu.
func (s *Session) applySize() {
	if s.shell == nil || !s.alive {
		return
	}
	size := s.size()
	_ = terminal.Control(s.shell.term.master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
}

// size is the size that the terminal should have. The caller holds mu.
func (s *Session) size() unix.Winsize {
	if n := len(s.sized); n > 0 {
		a := s.sized[n-1]
		return unix.Winsize{Row: uint16(a.rows), Col: uint16(a.cols)} //nolint:gosec // bounded by Resize
	}
	return unix.Winsize{Row: terminalRows, Col: terminalCols}
}
