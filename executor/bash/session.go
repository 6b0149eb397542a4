package bash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/actiond/actiond/executor/lookpath"
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
	// User is who runs the shell; nil means whoever runs this process.
	User *User
	// As runs file system work with the rights of User; nil means as is.
	As func(func() error) error
}

// User is an identity for processes.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Command is what Run does.
type Command struct {
	// Text is the command, the input, or nothing: then Run waits for more
	// output of the command that runs.
	Text string
	// Input makes Text input of the running command, or a key such as "C-c".
	Input bool
	// Soft is how long output may fall silent before Run answers; 0 means for ever.
	Soft time.Duration
	// Hard is how long Run waits in all; negative means for ever.
	Hard time.Duration

	follower *follower // of Stream; nil where nobody follows the output
}

// Outcome is why Run answered.
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
)

// Result is the answer of Run.
type Result struct {
	Outcome Outcome
	// Output is what a person would have seen since the last answer.
	Output string
	// Omitted counts the lines before Output that are no longer kept.
	Omitted int
	// Continued says that an earlier answer was about the same command.
	Continued bool
	// Status is $? of a completed command; 128 and the signal's number for a
	// shell that was killed.
	Status int
	// Background is $!, -1 when there never was a background job.
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
	// Commands are the commands of a Multiple outcome.
	Commands []string
	// Start and End are the offsets in the session's output, in bytes since it
	// began, between which the raw bytes of Output lie.
	Start, End int64
}

// Session is a shell that stays: when its process ends, the next command finds
// a new one with the old one's directory, exported variables, functions and
// aliases, as far as they were saved.
//
// Its methods may be called concurrently. One Run waits at a time and the
// others queue; input, however, is typed at once. The session owns the
// goroutines of its shell; Close ends them.
type Session struct {
	cfg  Config
	turn chan struct{} // holds a token while nobody runs

	// pressing keeps the signal of a key and the line of a command apart. It is
	// taken before mu.
	pressing sync.Mutex

	mu       sync.Mutex
	shell    *shell // the last one started
	alive    bool   // the shell has not ended
	closed   bool
	screen   *Screen
	log      outputLog
	start    int64     // offset where the output of the next answer begins
	lastByte time.Time // when the last output came
	current  *running
	seq      uint64
	dir      string
	path     string
	flags    string
	status   int
	jobPID   int    // $!, -1 when there never was a background job
	state    string // what save last told
	died     string // how the last shell ended, until an answer says so
	prompt   string // last line of the last answer: what stands before typed text
	count    int64
	started  time.Time
	keyed    bool          // a key was pressed for the last command
	notes    []note        // the last commands, for those who attach
	sized    []*Attachment // who asked for a size, the last one last
	more     chan struct{} // closed at the next change, nil while nobody watches
}

// running is a command that was given to the shell.
type running struct {
	seq      uint64
	text     string
	sent     chan struct{} // closed once the shell was given it
	given    time.Time     // when that was
	answered bool          // an answer about it has been given
	key      string        // the last key pressed
	by       *Attachment   // whose line it is, nil for an action's
	done     chan struct{} // closed when it ended; the fields below hold then
	status   int
	pid      int
}

// ErrClosed says that the session was closed.
var ErrClosed = errors.New("the session is closed")

// errStart says that a shell ended or fell silent before it was ready.
var errStart = errors.New("the shell did not become ready")

// readyTime bounds the first start of a shell, its personal files included, and
// againTime any later one: two of those are tried within the usual soft limit.
const (
	readyTime = 10 * time.Second
	againTime = 4 * time.Second
)

// Start starts a session and returns when its shell has run a command. ctx
// bounds the wait.
func Start(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.As == nil {
		cfg.As = func(f func() error) error { return f() }
	}
	if cfg.Program == "" {
		cfg.Program = findShell(cfg.Env)
	}
	if cfg.Program == "" {
		return nil, errors.New("there is neither bash nor sh on the PATH: the image needs a shell")
	}
	s := &Session{
		cfg: cfg, turn: make(chan struct{}, 1), screen: NewScreen(terminalCols, terminalRows),
		dir: cfg.Dir, jobPID: -1, started: time.Now(),
	}
	s.turn <- struct{}{}
	if err := s.revive(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// findShell looks for bash, then sh, as exec would with env.
func findShell(env []string) string {
	path := lookpath.Of(env, "/usr/local/bin:/usr/bin:/bin") + ":/usr/bin:/bin"
	if bash := lookpath.Find("bash", path); bash != "" {
		return bash
	}
	return lookpath.Find("sh", path)
}

// revive makes sure that there is a living shell. The caller has the turn.
func (s *Session) revive(ctx context.Context) error {
	s.mu.Lock()
	alive, closed := s.alive, s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if alive {
		return nil
	}
	err := s.launch(ctx, true)
	if err != nil && ctx.Err() == nil && !errors.Is(err, exec.ErrNotFound) {
		s.mu.Lock()
		s.state = "" // it, or the personal files, may be what ended it
		s.mu.Unlock()
		err = s.launch(ctx, false) // its personal files may be what ended it
	}
	return err
}

// launch starts a shell and waits until it has run its first commands.
func (s *Session) launch(ctx context.Context, personal bool) error {
	dir := existing(s.dir, s.cfg.Dir)
	sh, err := startShell(s.cfg.Program, dir, &s.cfg, s)
	if err != nil {
		return err
	}
	ready := s.begin("", sh, nil)
	s.mu.Lock()
	s.applySize()
	s.mu.Unlock()
	lines := ""
	if personal {
		lines += sh.run(sh.personalFiles(), sh.term.name)
	}
	if s.state != "" {
		// The saved PWD may be older than the directory.
		lines += sh.run(s.state, "/dev/null") + sh.call + "cd " + quote(dir) + "\n"
	}
	lines += sh.setUp() + sh.report(sh.token, ready.seq, sh.term.name)
	if err = sh.send(lines); err == nil {
		err = s.awaitReady(ctx, sh, ready)
	}
	s.mu.Lock()
	s.current = nil
	s.changed()
	s.screen.restart()
	s.start = s.log.End()
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

func (s *Session) awaitReady(ctx context.Context, sh *shell, ready *running) error {
	limit := readyTime
	if s.Info().Commands > 0 {
		limit = againTime
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ready.done:
		if s.lives(sh) {
			return nil
		}
		<-sh.gone
	case <-sh.gone:
	case <-timer.C:
		return fmt.Errorf("%w within %v", errStart, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	status, _ := sh.exitStatus()
	return fmt.Errorf("%w: it ended with status %d", errStart, status)
}

// lives tells whether sh is the session's shell and has not ended.
func (s *Session) lives(sh *shell) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive && s.shell == sh
}

// begin makes a command the current one, of sh if that is a new shell. by is
// nil unless a person typed it.
func (s *Session) begin(text string, sh *shell, by *Attachment) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	if sh != nil {
		s.shell, s.alive = sh, true
	}
	s.current = &running{seq: s.seq, text: text, by: by, sent: make(chan struct{}), done: make(chan struct{})}
	s.lastByte = time.Now()
	if sh == nil {
		s.remember(s.current)
	}
	s.changed()
	return s.current
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

// output takes bytes from the terminal.
func (s *Session) output(sh *shell, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell != sh {
		return // a job that outlived its shell
	}
	s.log.Append(p)
	_, _ = s.screen.Write(p)
	s.lastByte = time.Now()
	s.changed()
}

// reported ends the current command.
func (s *Session) reported(sh *shell, r report) {
	s.mu.Lock()
	c := s.current
	if s.shell != sh || c == nil || c.seq != r.seq || c.ended() {
		s.mu.Unlock()
		return // said twice, after a key
	}
	save := mayChangeState(c.text) || r.path != s.path
	s.mu.Unlock()
	if save { // before the next command can be given
		_ = sh.send(sh.save(sh.token))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended() {
		return // with its shell
	}
	if filepath.IsAbs(r.dir) { // pwd may not know, where the directory is gone
		s.dir = r.dir
	}
	s.flags, s.status, s.path, s.jobPID = r.flags, r.status, r.path, r.background
	c.status, c.pid = r.status, r.background
	close(c.done)
	s.changed()
}

func (c *running) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// saved keeps what a new shell will need.
func (s *Session) saved(sh *shell, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == sh {
		s.state = state
	}
}

// ended notes the death of the shell, which ends the current command too.
func (s *Session) ended(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell != sh || !s.alive {
		return
	}
	s.alive = false
	status, signal := sh.exitStatus()
	s.died = fmt.Sprintf("exited with status %d", status)
	if signal != 0 {
		s.died = fmt.Sprintf("was killed by signal %d (%v)", signal, signal)
	}
	s.status, s.jobPID = 0, -1
	if c := s.current; c != nil && !c.ended() {
		c.status, c.pid = status, -1
		close(c.done)
	}
	s.changed()
}

// Close ends the shell as closing its terminal would, and returns when it is
// gone. What the shell's commands detached from it lives on. A Run that waits
// returns ErrClosed or the end of its command.
func (s *Session) Close() {
	s.mu.Lock()
	sh := s.shell
	s.closed = true
	s.changed()
	s.mu.Unlock()
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
		info.PID = s.shell.cmd.Process.Pid
	}
	return info
}
