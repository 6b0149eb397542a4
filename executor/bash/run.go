package bash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/shorten"
)

// Run does one command and waits until it ends, falls silent or takes too
// long. ctx bounds the wait and never ends the command: output that comes after Run
// returned is part of the next answer. An error means that nothing is known about
// the command: the session is closed, ctx is over, the shell could not be started,
// or a program does not take its input.
//
// A command runs at most once: a new shell gets it only where the shell before ended
// before it began the command, or reports that it could not begin it.
//
// The effect of Run depends on the text and on the last command that was given:
//
//	last command          a command    input or a key     empty, for more output
//	runs                  [Refused]    typed; wait        wait
//	ended, not answered   given; wait  answered           answered
//	answered, or none     given; wait  [NothingToType]    [NothingToPoll]
//
// A C-c that is not input gives a new prompt where no command runs, and a text of
// several commands is [Multiple]. [Session.look] watches a command that was given.
func (s *Session) Run(ctx context.Context, c Command) (Result, error) {
	if c.Input && c.Verbatim {
		c.Text = strings.TrimSuffix(strings.ReplaceAll(c.Text, "\r\n", "\n"), "\n") + "\n"
	} else {
		c.Text = strings.TrimSpace(c.Text)
	}
	key, isKey := Key(c.Text)
	if c.KeyNames {
		key, c.sequence = NamedKey(c.Text)
		isKey = key != nil || c.sequence != nil
	}
	commands := []string{c.Text}
	if !isKey && !c.Verbatim && !c.Several {
		commands = Split(c.Text)
	}
	var typed *running
	if c.Input && c.Text != "" && len(commands) == 1 {
		// Before the turn comes: a C-c must not wait behind the Run that it should end.
		err := c.begins()
		if err != nil {
			return Result{}, err
		}
		if typed, err = s.typeInto(ctx, c, key); err != nil {
			return Result{}, err
		}
	}
	c.starts()
	if err := s.takeTurn(ctx, c, typed); errors.Is(err, errAnotherWaits) {
		outcome := TimedOut
		if channel.Closed(c.Cancelled) {
			outcome = Abandoned
		}
		return Result{Outcome: outcome, Continued: true, Background: -1}, nil
	} else if err != nil {
		return Result{}, err
	}
	defer func() { s.turn <- struct{}{} }()
	cur, err := s.last(ctx, c.over)
	if err != nil {
		return Result{}, err
	}
	switch {
	case cur == nil && typed == nil && c.Text == "":
		return Result{Outcome: NothingToPoll}, nil
	case cur == nil && typed == nil && c.Input:
		return Result{Outcome: NothingToType}, nil
	case len(commands) > 1:
		return Result{Outcome: Multiple, Commands: commands}, nil
	case typed != nil:
		cur = typed
	case cur != nil && (c.Text == "" || c.Input):
		s.lookSoon(cur)
	case cur != nil && !cur.ended():
		s.lookSoon(cur)
		return s.answer(cur, Refused, c), nil
	case isKey:
		return s.idleKey(key), nil
	default:
		cur = nil
	}
	if err := c.begins(); err != nil {
		return Result{}, err
	}
	return s.follow(ctx, cur, cur == nil, c)
}

// begins calls the hook of a command, once.
func (c *Command) begins() error {
	if c.Begin == nil {
		return nil
	}
	err := c.Begin()
	c.Begin = nil
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	return nil
}

// errAnotherWaits says that the hard limit ended, or the wait was cancelled, while another
// Run waits for the same command, and will return more.
var errAnotherWaits = errors.New("another call waits for the command")

// takeTurn waits for the turn in the session. typed is the command that was typed
// into, if any.
func (s *Session) takeTurn(ctx context.Context, c Command, typed *running) error {
	select {
	case <-s.turn:
	default:
		if c.Queue != nil {
			c.Queue()
		}
		if typed == nil { // only ctx ends the wait
			c.over, c.Cancelled = nil, nil
		}
		select {
		case <-s.turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.over:
			return errAnotherWaits
		case <-c.Cancelled:
			return errAnotherWaits
		}
	}
	if ctx.Err() != nil {
		s.turn <- struct{}{}
		return context.Cause(ctx)
	}
	return nil
}

// last returns the last command if no answer had its result, after the start of a
// shell that may be in progress; nil if there is none.
func (s *Session) last(ctx context.Context, over <-chan time.Time) (*running, error) {
	s.mu.Lock()
	starting := s.starting
	s.mu.Unlock()
	if err := starting.wait(ctx, over); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.by != nil && s.current.ended() {
		s.current = nil // no action asks how a person's command ended
	}
	return s.current, nil
}

// after is time.After for a limit that may not hold: then the channel is nil.
func after(holds bool, d time.Duration) <-chan time.Time {
	if !holds {
		return nil
	}
	return time.After(d)
}

// idleKey presses a key while no command runs: C-c gives a new prompt and status
// 130, and no other has a meaning there.
func (s *Session) idleKey(key []byte) Result {
	if key[0] != interruptKey {
		return Result{Outcome: NothingToType}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.status = nil, 130
	return Result{Outcome: Completed, Output: "^C", Status: 130, Background: s.jobPID, Key: "C", Dir: s.dir, Path: s.path}
}

// follow waits for cur, or for the command of c after it was given to the shell if cur
// is nil, and answers. A command that the shell did not begin is given again. own says that
// cur is the command of this Run, which ends where it is cancelled.
func (s *Session) follow(ctx context.Context, cur *running, own bool, c Command) (r Result, err error) {
	text := c.Text
	if c.Output != nil {
		defer s.unlisten()
	}
	for tries := 0; ; tries++ {
		if cur == nil {
			if tries == maxShells {
				return r, errNoCommands
			}
			if cur, err = s.give(ctx, c.over, text, nil); err != nil {
				return r, err
			}
			if c.Hidden && own {
				s.forget(cur)
			}
		}
		if c.Output != nil {
			s.mu.Lock()
			if s.listener == nil {
				s.listen(s.start, c.Output)
			}
			s.mu.Unlock()
		}
		outcome, err := s.wait(ctx, cur, c, own)
		if err != nil {
			return r, err
		}
		if outcome != Completed || !cur.unrun {
			return s.answer(cur, outcome, c), nil
		}
		s.mu.Lock()
		given := s.current != cur // to a new shell, by the Run that gave it, while this one typed into it
		s.mu.Unlock()
		if given {
			return Result{Outcome: NothingToType}, nil
		}
		cur, text = nil, cur.text
	}
}

// maxShells bounds the shells that get a command until one begins it.
const maxShells = 3

// errNoCommands says that also new shells cannot begin a command.
var errNoCommands = errors.New("the shell does not begin commands, and a new one does not either")

// give hands a new command to the shell, which is started anew where it has ended
// or can take no more commands; ctx and over bound that. by is nil unless a person
// typed the command.
func (s *Session) give(ctx context.Context, over <-chan time.Time, text string, by *Attachment) (*running, error) {
	for range maxShells {
		if err := s.revive(ctx, over); err != nil {
			return nil, err
		}
		s.mu.Lock()
		sh := s.shell
		s.mu.Unlock()
		sh.wake()
		// From here on no key reaches the command before.
		s.pressing.Lock()
		cur, why, err := s.giveTo(sh, text, by)
		s.pressing.Unlock()
		if cur != nil {
			return cur, nil
		}
		if !channel.ClosedWithin(sh.gone, firstLook) { // otherwise it ended at this moment, by itself
			s.retire(sh, why)
		}
		if !channel.ClosedWithin(sh.finished, patience) {
			return nil, fmt.Errorf("the shell %s, and cannot be ended: %w", why, err)
		}
	}
	return nil, errNoCommands
}

// giveTo hands a command to one shell, or returns why that shell cannot take it, and the
// error that says so. The caller holds pressing.
func (s *Session) giveTo(sh *shell, text string, by *Attachment) (cur *running, why string, err error) {
	s.mu.Lock()
	status, flags, size := s.status, s.flags, s.size()
	s.mu.Unlock()
	if !sh.isBash && strings.Contains(flags, "n") {
		return nil, whyNoExec, errNotSent
	}
	id, err := sh.term.restore(size, sh.user)
	if err == nil && id != sh.process.Pid {
		err = fmt.Errorf("it is that of session %d", id)
	}
	if err != nil {
		return nil, whyTerminal, err
	}
	sh.drain() // what background jobs wrote before belongs to no command
	// A look at the command before ends first: its question must not follow the line,
	// because a shell that reads ahead would leave it to the programs of the line.
	s.looking.Lock()
	s.mu.Lock()
	if s.shell != sh || !s.alive || s.retired != "" { // it has ended, or was killed: its end may not end this command
		s.mu.Unlock()
		s.looking.Unlock()
		return nil, whyNoReport, errNotSent
	}
	s.restartScreen()
	s.prompt = ""
	s.count++
	cur = s.begin(text, by)
	cur.begun = !sh.saysBegins()
	s.mu.Unlock()
	line := sh.command(sh.token, cur.seq, text, status, sh.term.name)
	cur.given = time.Now()
	err = sh.sendText(line)
	s.looking.Unlock()
	close(cur.sent)
	if errors.Is(err, errNotSent) { // it closed its own descriptors, or has just ended
		return nil, whyNoReport, err
	}
	if err != nil {
		s.retire(sh, whyNoReport) // it has read a part; its end ends cur
	}
	s.lookSoon(cur)
	return cur, "", nil
}

// running is a command that was given to the shell.
type running struct {
	seq      int64
	text     string
	sent     chan struct{} // closed once the shell was given it
	given    time.Time     // when that was
	keyed    bool          // a key was pressed for it, or for the command before it
	begun    bool          // the shell said that it begins it, as far as the begin pipe was read, or cannot say so
	lost     bool          // its message on the begin pipe is missing, and its text may have run
	watch    watchState
	answered bool          // an answer about it has been given
	key      string        // the last key pressed
	cancel   string        // the last signal that was sent to cancel it
	by       *Attachment   // whose line it is, nil for an action's
	typist   *Attachment   // who typed into it, nil where no person did
	shared   bool          // another person, or an action, did too
	done     chan struct{} // closed when it ended; the fields below hold then
	status   int
	pid      int
	unrun    bool // the shell never began it
}

// unknownStatus is the status of a command that the shell could not report.
const unknownStatus = -1

// begin makes a command the current one, and remembers it unless it is the empty one
// of a new shell. The caller holds mu.
func (s *Session) begin(text string, by *Attachment) *running {
	s.seq++
	s.current = &running{seq: s.seq, text: text, by: by, keyed: s.keyed, sent: make(chan struct{}), done: make(chan struct{})}
	s.keyed = false
	s.lastByte = time.Now()
	if text != "" {
		n := note{seq: s.seq, at: s.start, dir: s.dir, text: shorten.Text(text, maxNote)}
		if by != nil && by.echoed {
			n.by = by
		}
		s.notes = append(s.notes, n)
		s.notes = s.notes[max(0, len(s.notes)-maxNotes):]
	}
	s.changed()
	return s.current
}

// note is the beginning of a command, for attachments: its place in the output,
// its directory and its text.
type note struct {
	seq       int64
	at        int64
	dir, text string
	by        *Attachment // that shows the text already, because it was typed there
}

// maxNotes bounds the beginnings of commands that are remembered for scroll-back, and
// maxNote the text of each.
const (
	maxNotes = 64
	maxNote  = 1 << 10
)

// forget removes the note of a hidden command.
func (s *Session) forget(cur *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = slices.DeleteFunc(s.notes, func(n note) bool { return n.seq == cur.seq })
}

// wait waits for the end of cur or of one of the limits.
func (s *Session) wait(ctx context.Context, cur *running, c Command, own bool) (Outcome, error) {
	if c.Waits != nil {
		c.Waits()
	}
	pause, unprompted := firstAsk, false // it waits for input and printed nothing, at the last look
	asks := after(c.AwaitsInput != nil, pause)
	silence := s.sinceOutput()
	if c.Soft > 0 && !own { // the clock below need not be asked where Run gave the command itself
		silence = s.silence(c.began)
	}
	soft := after(c.Soft > 0, c.Soft-silence)
	for {
		select {
		case <-cur.done:
			return Completed, nil
		case <-c.over:
			return TimedOut, nil
		case <-soft:
			left := c.Soft - s.silence(c.began)
			if left <= 0 {
				return Silent, nil
			}
			soft = time.After(left)
		case <-asks:
			switch silence := s.silence(c.began); {
			case silence < firstAsk:
				pause = firstAsk
			case c.AwaitsInput():
				if unprompted || s.printed() {
					return AtInput, nil
				}
				unprompted, pause = true, printTime
			default:
				pause = min(2*pause, max(firstAsk, silence/2), maxAsk)
			}
			asks = time.After(pause)
		case <-c.Cancelled:
			if !own {
				return Abandoned, nil
			}
			return Completed, s.cancel(ctx, cur)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// AwaitsInput is asked after a silence of firstAsk, and at the latest maxAsk later again.
const (
	firstAsk = 50 * time.Millisecond
	maxAsk   = time.Second
	// printTime is how long a command that printed nothing and waits for input is given: its prompt may be on the way
	// from the terminal.
	printTime = 4 * firstAsk
)

// printed reports whether the current command has output.
func (s *Session) printed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.End() > s.start
}

// silence returns for how long there was no output, at most the time since began.
func (s *Session) silence(began time.Duration) time.Duration {
	return min(s.sinceOutput(), proc.Uptime()-began)
}

// sinceOutput returns the time since the last output, or since a command was given later.
func (s *Session) sinceOutput() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.lastByte)
}

// reported ends the current command, if the report is about it.
func (s *Session) reported(sh *shell, r report) {
	s.mu.Lock()
	c := s.current
	if s.shell != sh || c == nil || c.seq != r.asked || c.ended() || c.lost {
		s.mu.Unlock()
		return // the answer to a question that was no longer needed
	}
	v := c.judge(sh, r)
	switch {
	case v == forged:
		s.mu.Unlock()
		return
	case v != ran && c.keyed: // a key came first
		r.progress.status = 128 + int(syscall.SIGINT)
	case v != ran:
		why := whyNoBegin
		if v == undecided {
			why = whyNoReport
		}
		c.begun, c.lost, c.unrun = v == undecided, v == undecided, v == notRun
		s.mu.Unlock()
		s.retire(sh, why)
		return
	}
	save := v == ran && (mayChangeState(c.text) || r.path != s.path)
	if save && s.saving == nil {
		s.saving = make(chan struct{})
	}
	s.mu.Unlock()
	sh.drain()
	if save { // before the next command can be given
		_ = sh.send(sh.save(sh.token))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended() {
		return // with its shell
	}
	if c.typist != nil {
		if unread := sh.term.unread(); !c.shared {
			c.typist.unread = append(c.typist.unread, unread...)
		}
	}
	if r.dir != "" {
		s.dir = r.dir
	}
	s.reportedAt = r.at
	s.flags, s.status, s.path, s.jobPID = r.flags, max(r.progress.status, 0), r.path, r.background
	c.end(r.progress.status, r.background)
	s.changed()
}

// verdict says whether the reported command ran.
type verdict int

const (
	ran       verdict = iota
	notRun            // a new shell may get it
	undecided         // its message on the begin pipe is missing, or contradicts the report
	forged            // the report is another process's
)

// judge returns the verdict on c, whose shell seems to have reported r, and notes in c what the begin pipe says. The
// caller holds mu of the session.
func (c *running) judge(sh *shell, r report) verdict {
	if r.progress.begun < 0 || r.progress.begun >= c.seq {
		switch {
		case c.begun || !sh.skipped(c.seq):
			return ran
		case sh.isRobbable():
			return undecided
		}
		return notRun
	}
	begun, _ := sh.readBegins(c.seq)
	c.begun = c.begun || begun
	if at := sh.standardFile(0); at != "" && at != sh.input {
		return forged // the shell reports outside of commands
	}
	if c.begun {
		return undecided
	}
	return notRun
}

// end ends a command. The caller holds mu of the session.
func (c *running) end(status, pid int) {
	c.status, c.pid = status, pid
	close(c.done)
}

func (c *running) ended() bool { return channel.Closed(c.done) }

// busy reports whether a command runs. The caller holds mu.
func (s *Session) busy() bool { return s.current != nil && !s.current.ended() }

// answer builds the result about cur and begins a new stretch of output.
func (s *Session) answer(cur *running, outcome Outcome, c Command) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome != Refused && cur.ended() && !cur.unrun {
		outcome = Completed // it ended at this moment
	}
	text, omitted := s.screen.Text()
	end := s.log.End()
	r := Result{
		Outcome: outcome, Output: text, Omitted: omitted, Continued: cur.answered, Background: -1,
		Key: cur.key, Cancelled: cur.cancel, Start: s.start, End: end,
	}
	if c.Input && r.Key == "" {
		r.Output = withoutEcho(r.Output, s.prompt, c.Text)
	}
	s.screen.Reset()
	if c.Output != nil && s.listener == nil {
		s.listen(s.start, c.Output)
	}
	s.listener = nil
	s.start = end
	s.prompt = r.Output[strings.LastIndexByte(r.Output, '\n')+1:]
	cur.answered = true
	cur.key = ""
	if outcome != Completed {
		return r
	}
	r.Status, r.Background, r.Dir, r.Path = cur.status, cur.pid, s.dir, s.path
	r.Restarted, r.RestartReason, r.RestartSignal = s.died.text, s.died.reason, s.died.signal
	s.died = death{}
	r.SlowStart, s.slow = s.slow, 0
	if s.current == cur {
		s.current = nil
	}
	return r
}

// withoutEcho removes the terminal's echo of typed from the front of
// output: the text, or the prompt it was typed at and the text.
func withoutEcho(output, prompt, typed string) string {
	first, rest, _ := strings.Cut(output, "\n")
	line := strings.TrimRight(first, " \t")
	typed = strings.TrimRight(typed, " \t\n")
	if line == typed || prompt != "" && strings.HasPrefix(line, prompt) && strings.TrimSpace(line[len(prompt):]) == strings.TrimSpace(typed) {
		return rest
	}
	return output
}
