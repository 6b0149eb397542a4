package bash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash/screen"
	"github.com/actiond/actiond/executor/internal/lock"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
)

// Frozen is a session on its way to another program in the same process, which can be
// written as JSON. Descriptors stay open meanwhile, and the shell a child.
type Frozen struct {
	Program, FirstDir       string
	Env                     []string
	Dir, Path, Flags, State string
	Status, Job             int
	ReportedAt              time.Duration
	Died, Retired, Prompt   string
	Slow                    time.Duration
	Plain, Keyed            bool
	Count, Seq              int64
	Started                 time.Time
	Notes                   []FrozenNote

	// Log is the end of the output, as far as it is handed over.
	Log                   []byte
	LogEnd, Drawn, Starts int64
	Heard                 int64         // up to where its listener has it
	LastByte              time.Duration // when the last output came, as [proc.Uptime] returns it
	Text                  string        // of the screen, where Log does not hold what it shows
	Omitted               int
	Lost                  bool           // the shell is not handed over
	Shell                 *FrozenShell   // nil where it ended
	Current               *FrozenCommand // nil for none
}

// FrozenNote is the beginning of a command, for attachments.
type FrozenNote struct {
	Seq, At   int64
	Dir, Text string
}

// FrozenCommand is the last command of a session, which may have ended.
type FrozenCommand struct {
	Seq                                  int64
	Text, Key, Cancel                    string
	Given                                time.Time
	Keyed, Begun, Answered, Ended, Unrun bool
	Person                               bool // typed it
	Status, Job                          int
}

// FrozenShell is a shell that runs, with the numbers of the descriptors of its terminal
// and of its pipes.
type FrozenShell struct {
	PID                            int
	Token, Terminal                string
	Cmdline, Pending               []byte
	Pressed, Locks                 bool
	Master, Slave, Script, Reports int
	Begins                         int // 0 where the shell has no begin pipe
	Modes                          unix.Termios
	UID, GID, Mode                 uint32
}

// Upgraded says how a shell ended that could not be handed over.
const Upgraded = "was ended by an upgrade of the server"

// freezeTime bounds how long a shell that starts or ends is waited for.
const freezeTime = 2 * time.Second

// Freeze stops a session and returns its state, so that another program can go on with it by
// [Restore], or this one by [Session.Resume]. keep is called for each open file that
// must stay open, and returns its descriptor. Until Resume all methods wait. After an
// error the session goes on. A shell is not handed over where a full-screen program runs
// in it that printed too much to be drawn again: Frozen.Lost then says so.
func (s *Session) Freeze(ctx context.Context, keep func(*os.File) (int, error)) (*Frozen, error) {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	for {
		s.mu.Lock()
		starting, sh := s.starting, s.shell
		s.mu.Unlock()
		if starting != nil {
			select {
			case <-starting.done:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("the shell is still being started: %w", ctx.Err())
			}
		}
		if err := s.lock(ctx, sh); err != nil {
			return nil, err
		}
		settled := s.starting == nil && s.shell == sh && (!s.alive || sh.ended == nil)
		if settled {
			break
		}
		s.unlock(sh)
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("the shell is just ending: %w", ctx.Err())
		}
	}
	f, err := s.freeze(keep)
	if err != nil {
		s.unlock(s.shell)
	}
	return f, err
}

// Resume lets a frozen session go on in this program.
func (s *Session) Resume() { s.unlock(s.shell) }

// lock keeps everything from happening in a session. It fails where something does not pause
// until ctx ends.
func (s *Session) lock(ctx context.Context, sh *shell) error {
	locks := []*sync.Mutex{&s.pressing, &s.looking}
	if sh != nil {
		locks = append(locks, &sh.reporting, &sh.reading)
	}
	locks = append(locks, &s.mu)
	for i, l := range locks {
		if err := lock.Before(ctx, l); err != nil {
			for _, held := range locks[:i] {
				held.Unlock()
			}
			return fmt.Errorf("the session does not pause: %w", err)
		}
	}
	return nil
}

func (s *Session) unlock(sh *shell) {
	s.mu.Unlock()
	if sh != nil {
		sh.reading.Unlock()
		sh.reporting.Unlock()
	}
	s.looking.Unlock()
	s.pressing.Unlock()
}

func (s *Session) freeze(keep func(*os.File) (int, error)) (*Frozen, error) {
	if s.closed {
		return nil, ErrClosed
	}
	f := &Frozen{
		Program: s.cfg.Program, FirstDir: s.cfg.Dir, Env: s.cfg.Env, Dir: s.dir, Path: s.path, Flags: s.flags, State: s.state,
		Status: s.status, Job: s.jobPID, ReportedAt: s.reportedAt, Died: s.died, Slow: s.slow, Retired: s.retired, Prompt: s.prompt, Plain: s.plain, Keyed: s.keyed,
		Count: s.count, Seq: s.seq, Started: s.started, LogEnd: s.log.End(), Drawn: s.drawn, Starts: s.start,
	}
	f.LastByte = proc.Uptime() - time.Since(s.lastByte)
	if f.Heard = s.start; s.listener != nil {
		f.Heard = s.listener.next
	}
	for _, n := range s.notes {
		f.Notes = append(f.Notes, FrozenNote{n.seq, n.at, n.dir, n.text})
	}
	from := max(s.log.Start(), s.log.End()-scrollBack)
	if c := s.current; c != nil {
		f.Current = &FrozenCommand{
			Seq: c.seq, Text: c.text, Key: c.key, Cancel: c.cancel, Given: c.given, Keyed: c.keyed, Begun: c.begun, Answered: c.answered,
			Ended: c.ended(), Unrun: c.unrun, Person: c.by != nil, Status: c.status, Job: c.pid,
		}
		switch {
		case s.drawn >= s.log.Start():
			from = min(from, s.drawn)
		case s.screen.AltActive() && !c.ended():
			f.Lost, f.Died, f.Current = true, Upgraded, nil
		default:
			f.Text, f.Omitted = s.screen.Text()
			f.Drawn = s.log.End()
		}
	}
	f.Log = s.read(from, s.log.End(), make([]byte, s.log.End()-from)).Data
	if !s.alive || f.Lost {
		return f, nil
	}
	var err error
	f.Shell, err = s.shell.freeze(keep)
	return f, err
}

// freeze returns the state of a shell whose readers are locked.
func (sh *shell) freeze(keep func(*os.File) (int, error)) (*FrozenShell, error) {
	f := &FrozenShell{
		PID: sh.process.Pid, Token: sh.token, Terminal: sh.term.name, Pending: sh.pending, Pressed: sh.pressed.Load(),
		Locks: sh.term.locks, Modes: sh.term.modes, UID: sh.term.owner.Uid, GID: sh.term.owner.Gid, Mode: sh.term.owner.Mode,
	}
	if own := sh.cmdline.Load(); own != nil {
		f.Cmdline = *own
	}
	for _, file := range []struct {
		open *os.File
		fd   *int
	}{{sh.term.master, &f.Master}, {sh.term.slave, &f.Slave}, {sh.script, &f.Script}, {sh.reports, &f.Reports}, {sh.begins, &f.Begins}} {
		if file.open == sh.begins && sh.errors == "" {
			continue
		}
		fd, err := keep(file.open)
		if err != nil {
			return nil, fmt.Errorf("keeping the terminal of the shell: %w", err)
		}
		*file.fd = fd
	}
	return f, nil
}

// Restore goes on with a session that was frozen in another program of this process. Of
// cfg, User and List count. waited says that [Session.Continue] follows, before which no other
// Run has its turn and no output is read. The caller must call Close.
func Restore(cfg Config, f *Frozen, waited bool) (*Session, error) {
	cfg.Program, cfg.Dir, cfg.Env = f.Program, f.FirstDir, f.Env
	s := &Session{
		cfg: cfg, turn: make(chan struct{}, 1), screen: screen.New(terminalCols, terminalRows),
		dir: f.Dir, path: f.Path, flags: f.Flags, state: f.State, status: f.Status, jobPID: f.Job, reportedAt: f.ReportedAt, died: f.Died, slow: f.Slow, retired: f.Retired,
		prompt: f.Prompt, plain: f.Plain, keyed: f.Keyed, count: f.Count, seq: f.Seq, started: f.Started, start: f.Starts, drawn: f.Drawn,
		heard: f.Heard, lastByte: time.Now().Add(min(0, f.LastByte-proc.Uptime())), log: outputLog{end: f.LogEnd - int64(len(f.Log))},
	}
	if !waited {
		s.turn <- struct{}{}
	}
	s.log.Append(f.Log)
	for _, n := range f.Notes {
		s.notes = append(s.notes, note{seq: n.Seq, at: n.At, dir: n.Dir, text: n.Text})
	}
	if f.Current != nil {
		s.restoreCommand(f)
	}
	if f.Shell == nil {
		return s, nil
	}
	sh, err := restoreShell(&s.cfg, f, s)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.shell, s.alive = sh, true
	s.applySize()
	cur := s.current
	s.mu.Unlock()
	if waited {
		return s, nil
	}
	sh.attend()
	if cur != nil {
		s.lookSoon(cur)
	}
	return s, nil
}

// restoreCommand makes the last command, and draws what it printed.
func (s *Session) restoreCommand(f *Frozen) {
	c := f.Current
	sent := make(chan struct{})
	close(sent)
	s.current = &running{
		seq: c.Seq, text: c.Text, key: c.Key, cancel: c.Cancel, given: c.Given, keyed: c.Keyed, begun: c.Begun, answered: c.Answered,
		unrun: c.Unrun, sent: sent, done: make(chan struct{}),
	}
	if c.Person {
		s.current.by = &Attachment{s: s} // the person attaches again
	}
	if c.Ended {
		s.current.end(c.Status, c.Job)
	}
	if f.Text != "" || f.Omitted > 0 || f.Drawn < s.log.Start() {
		s.screen.Restore(f.Text, f.Omitted)
		return
	}
	draw := func(from, to int64) {
		_, _ = s.screen.Write(s.read(from, to, make([]byte, to-from)).Data)
	}
	draw(f.Drawn, max(f.Drawn, f.Starts))
	s.screen.Reset()
	draw(max(f.Drawn, f.Starts), f.LogEnd)
}

// restoreShell takes the descriptors of a shell, which the session then owns.
func restoreShell(cfg *Config, f *Frozen, l listener) (*shell, error) {
	from := f.Shell
	open := func(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }
	term := &pty{
		master: open(from.Master, "/dev/ptmx"), slave: open(from.Slave, from.Terminal), name: from.Terminal, modes: from.Modes, locks: from.Locks,
		owner: unix.Stat_t{Uid: from.UID, Gid: from.GID, Mode: from.Mode},
	}
	sh := newShell(f.Program, term, from.Token, cfg, l)
	sh.script, sh.reports, sh.pending = open(from.Script, "|1"), open(from.Reports, "|0"), from.Pending
	sh.pressed.Store(from.Pressed)
	if from.Cmdline != nil {
		sh.cmdline.Store(&from.Cmdline)
	}
	if from.Begins != 0 {
		begins, err := unpolled(from.Begins)
		if err != nil {
			return nil, fmt.Errorf("taking over the begin pipe of a shell: %w", err)
		}
		sh.begins = begins
	}
	for _, file := range []*os.File{term.master, term.slave, sh.script, sh.reports} {
		if file == nil {
			return nil, errors.New("a descriptor of the shell did not come")
		}
		if err := terminal.Control(file, func(fd int) error { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err }); err != nil {
			return nil, fmt.Errorf("taking over the terminal of a shell: %w", err)
		}
	}
	var err error
	if sh.process, err = os.FindProcess(from.PID); err == nil {
		err = sh.namePipes()
	}
	if err != nil {
		return nil, fmt.Errorf("taking over the shell %d: %w", from.PID, err)
	}
	return sh, nil
}
