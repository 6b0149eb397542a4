package bash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Run does one command and waits until it ends, falls silent or takes too
// long. ctx bounds the wait and never ends the command: what it writes after
// Run gave up is part of the next answer. An error means that nothing is known
// about the command: the session is closed, ctx is over, the shell could not
// be started, or a program does not take its input.
func (s *Session) Run(ctx context.Context, c Command) (Result, error) {
	c.Text = strings.TrimSpace(c.Text)
	typed, err := s.typeNow(ctx, c)
	if err != nil {
		return Result{}, err
	}
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	case <-limit(typed != nil && c.Hard >= 0, c.Hard):
		// Somebody else waits for the same command and will be told more.
		return Result{Outcome: TimedOut, Continued: true, Background: -1}, nil
	}
	began := time.Now()
	cur, settled, err := s.decide(ctx, c, typed)
	if err != nil || cur == nil {
		return settled, err
	}
	s.begins(c.follower)
	outcome, err := s.wait(ctx, cur, c, began)
	if err != nil {
		return Result{}, err
	}
	return s.answer(cur, outcome, c), nil
}

// typeNow types input into the running command before waiting for the turn: a
// C-c must not queue behind the wait that it is to end. It returns the command
// it typed into.
func (s *Session) typeNow(ctx context.Context, c Command) (*running, error) {
	s.mu.Lock()
	cur, sh := s.current, s.shell
	if !c.Input || c.Text == "" || cur == nil || cur.ended() {
		s.mu.Unlock()
		return nil, nil
	}
	s.mu.Unlock()
	if len(commandsOf(c.Text)) > 1 {
		return nil, nil
	}
	select {
	case <-cur.sent:
	case <-cur.done:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	key, isKey := Key(c.Text)
	if !isKey {
		// Enter is a carriage return, which the terminal turns into a newline
		// for programs that read lines.
		return cur, sh.press([]byte(strings.ReplaceAll(c.Text, "\n", "\r") + "\r"))
	}
	return cur, s.pressKey(cur, sh, key, KeyName(c.Text))
}

// pressKey presses a key for the command, unless it has ended meanwhile: the
// signal of a key that comes late would hit the shell while it reads its script.
func (s *Session) pressKey(cur *running, sh *shell, key []byte, name string) error {
	s.pressing.Lock()
	defer s.pressing.Unlock()
	sh.awaitBegin(s.cfg.As, cur.done)
	ends(cur, time.Until(cur.given.Add(parseTime(cur.text))))
	s.mu.Lock()
	ended := cur.ended()
	if !ended {
		cur.key = name
		s.keyed = true
	}
	s.mu.Unlock()
	if ended {
		return nil
	}
	sh.wake()
	alone, early := sh.inForeground(), !sh.hasProgram()
	if err := sh.press(key); err != nil {
		return err
	}
	if key[0] == interruptKey && early && tookOver(cur, sh) {
		// The key came before the program was there: the shell waits for it now,
		// and the copy of the shell that became it forgot the signal.
		if err := sh.press(key); err != nil {
			return err
		}
	}
	if key[0] == quitKey && alone && !ends(cur, beginTime) {
		sh.kill() // a loop of the shell's own that traps every key
	}
	if cur.ended() {
		// It ended this very moment. What the signal may have cut in two is a
		// line of ours; where that was the report, wait notices. A shell that
		// takes no more ended with the command, or is of no more use.
		if sh.send(closeQuotes) != nil {
			sh.kill()
		}
	}
	return nil
}

// tookOver waits whether a program takes the terminal from a shell that was
// about to start it. False means that cur ended first, or the shell goes on by
// itself.
func tookOver(cur *running, sh *shell) bool {
	for range startLooks {
		if ends(cur, askTime) {
			return false
		}
		if sh.hasProgram() {
			return true
		}
	}
	return false
}

// startLooks times askTime is a second: many times what a shell takes to start
// a program, also on a machine that is overloaded.
const startLooks = 50

// interruptKey is C-c.
const interruptKey = 'C' - '@'

// quitKey is C-\, with which a person ends what does not heed C-c.
const quitKey = '\\' - '@'

// parseTime is what bash needs at most to parse a text (measured: 50 ms for a
// megabyte; ten times that). When a signal reaches it before, bash 5.2 leaves
// the rest of the text in its parser and runs that as its next command.
func parseTime(text string) time.Duration {
	return 5*time.Millisecond + time.Duration(len(text))*500*time.Nanosecond
}

// decide finds the command to wait for, starting it if it is new, or settles
// the answer where there is none. The caller has the turn.
func (s *Session) decide(ctx context.Context, c Command, typed *running) (*running, Result, error) {
	s.mu.Lock()
	if s.current != nil && s.current.by != nil && s.current.ended() {
		s.current = nil // nobody asks how a person's command ended
	}
	cur := s.current
	s.mu.Unlock()
	if cur != nil && !cur.ended() {
		s.checkReport(cur)
	}
	commands := commandsOf(c.Text)
	switch {
	case cur == nil && typed == nil && c.Text == "":
		return nil, Result{Outcome: NothingToPoll}, nil
	case cur == nil && typed == nil && c.Input:
		return nil, Result{Outcome: NothingToType}, nil
	case len(commands) > 1:
		return nil, Result{Outcome: Multiple, Commands: commands}, nil
	case typed != nil:
		return typed, Result{}, nil
	case cur != nil && (c.Text == "" || c.Input):
		return cur, Result{}, nil
	case cur != nil && !cur.ended():
		return nil, s.answer(cur, Refused, c), nil
	}
	if key, ok := Key(c.Text); ok {
		return nil, s.idleKey(key), nil
	}
	cur, err := s.give(ctx, c.Text, nil)
	return cur, Result{}, err
}

// commandsOf is Split, which is not asked about keys.
func commandsOf(text string) []string {
	if _, ok := Key(text); ok {
		return nil
	}
	return Split(text)
}

// idleKey is a key on a shell that runs nothing: C-c gives a new prompt and
// status 130, and no other has a meaning there.
func (s *Session) idleKey(key []byte) Result {
	if key[0] != 'C'-'@' {
		return Result{Outcome: NothingToType}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.status = nil, 130
	return Result{Outcome: Completed, Output: "^C", Status: 130, Background: s.jobPID, Key: "C", Dir: s.dir, Path: s.path}
}

// give hands a new command to the shell. by is nil unless a person typed it.
func (s *Session) give(ctx context.Context, text string, by *Attachment) (*running, error) {
	if err := s.revive(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	sh, status, flags := s.shell, s.status, s.flags
	s.mu.Unlock()
	sh.drain() // what background jobs wrote before belongs to no command
	s.mu.Lock()
	s.screen.restart()
	s.start = s.log.End()
	s.prompt = ""
	s.count++
	keyed := s.keyed
	s.keyed = false
	s.mu.Unlock()
	cur := s.begin(text, nil, by)
	lines := sh.run(text, sh.term.name) + sh.report(sh.token, cur.seq, sh.term.name)
	if status != 0 && !strings.Contains(flags, "e") { // with set -e it would end the shell
		lines = sh.status(status) + lines
	}
	sh.wake()
	s.pressing.Lock()
	if sh.pressed.Swap(false) { // perhaps at the very end of the command before
		sh.term.restore(true)
	}
	cur.given = time.Now()
	err := sh.send(lines)
	s.pressing.Unlock()
	close(cur.sent)
	if err == nil {
		if keyed {
			s.sweep(cur, sh)
		}
		return cur, nil
	}
	// A command that closed the shell's own descriptors leaves it deaf. Its end
	// ends cur, which is an answer unless cur was never seen.
	sh.kill()
	if !closes(sh.finished, hangUpTime) {
		return nil, fmt.Errorf("%w, and cannot be ended", errNotSent)
	}
	if errors.Is(err, errNotSent) {
		return s.give(ctx, text, by)
	}
	return cur, nil
}

// sweep ends what a command left that a key interrupted. bash 5.2 may keep the
// rest of its text in the parser when a signal comes between two of its
// commands, and runs that, with the script as its input, before it reads the
// next line: a program has the terminal, while the shell's input is still the
// script. It returns once the shell evaluates cur.
func (s *Session) sweep(cur *running, sh *shell) {
	left := 0 // the group that was found the last time
	for range sweepLooks {
		group := sh.foreground()
		if !strings.HasPrefix(sh.input(s.cfg.As), "pipe:") {
			return
		}
		if group == sh.cmd.Process.Pid || group <= 1 {
			group = 0
		}
		if group != 0 && group == left {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		left = group
		if ends(cur, askTime) {
			return
		}
	}
}

// sweepLooks times askTime is two seconds, many times what a shell takes to read
// a line.
const sweepLooks = 100

// wait waits for the end of cur or of one of the limits.
func (s *Session) wait(ctx context.Context, cur *running, c Command, began time.Time) (Outcome, error) {
	hard := limit(c.Hard >= 0, c.Hard-time.Since(began))
	look := lostTime
	if c.Input {
		look = askTime
	}
	lost := time.NewTimer(look)
	defer lost.Stop()
	var soft <-chan time.Time
	quiet := time.NewTimer(c.Soft)
	defer quiet.Stop()
	if c.Soft > 0 {
		soft = quiet.C
	}
	for {
		select {
		case <-cur.done:
			return Completed, nil
		case <-lost.C: // a key may have cost the report, of this command or of the one before
			s.checkReport(cur)
			look *= 2
			lost.Reset(look)
		case <-hard:
			s.checkReport(cur)
			return TimedOut, nil
		case <-soft:
			if left := c.Soft - s.silence(began); left > 0 {
				quiet.Reset(left)
				continue
			}
			s.checkReport(cur)
			return Silent, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// limit is a channel that tells when d is over, or never where it does not hold.
func limit(holds bool, d time.Duration) <-chan time.Time {
	if !holds {
		return nil
	}
	return time.After(d)
}

// silence is how long there has been no output, at most since began.
func (s *Session) silence(began time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastByte.After(began) {
		began = s.lastByte
	}
	return time.Since(began)
}

// checkReport deals with a report that does not come. A shell that stopped
// itself goes on. One that has read all its lines while the command counts as
// running has read ahead, or the line that reports was lost to a signal, or a
// command put something else in the builtins' place or took the terminal away.
// So it is asked again: the first leaves that unread, the second answers, and a
// shell that reads it time and again and says nothing, or cannot, is beyond help.
func (s *Session) checkReport(cur *running) {
	s.mu.Lock()
	sh, lost := s.shell, s.isLost(cur)
	s.mu.Unlock()
	sh.wake()
	for again := range askAgain {
		if !lost {
			return
		}
		if !sh.isMute() && sh.send(closeQuotes+sh.report(sh.token, cur.seq, sh.term.name)) == nil && ends(cur, askTime<<(3*again)) {
			return
		}
		s.mu.Lock()
		lost = s.isLost(cur)
		s.mu.Unlock()
	}
	if lost {
		sh.kill()
		ends(cur, hangUpTime)
	}
}

// isLost tells whether the report about cur can only come if it is asked for.
// The caller holds mu.
func (s *Session) isLost(cur *running) bool {
	return s.current == cur && s.alive && !cur.ended() && s.shell.hasReadAll() && !s.shell.replaced()
}

const (
	askAgain = 3
	// lostTime is when a command without a report is looked after for the first
	// time: most have ended by then, and a person has not lost patience. Each
	// further look comes after twice the time.
	lostTime = 500 * time.Millisecond
	// askTime is many times what a shell that is idle takes to answer. Before it
	// is given up it has eight times as long, and then 64 times: on a busy machine a
	// shell may have read the question and not be let run.
	askTime = 20 * time.Millisecond
)

// ends waits for the end of cur, at most for limit.
func ends(cur *running, limit time.Duration) bool { return closes(cur.done, limit) }

// answer builds the result about cur and begins a new stretch of output.
func (s *Session) answer(cur *running, outcome Outcome, c Command) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome != Refused && cur.ended() {
		outcome = Completed // it ended while a limit was being dealt with
	}
	text, omitted := s.screen.Text()
	end := s.log.End()
	r := Result{
		Outcome: outcome, Output: text, Omitted: omitted, Continued: cur.answered, Background: -1,
		Key: cur.key, Start: s.start, End: end,
	}
	if c.Input && r.Key == "" {
		r.Output = withoutEcho(r.Output, s.prompt, c.Text)
	}
	s.screen.Reset()
	s.finish(c.follower, end)
	s.start = end
	s.prompt = r.Output[strings.LastIndexByte(r.Output, '\n')+1:]
	cur.answered = true
	cur.key = ""
	if outcome != Completed {
		return r
	}
	r.Status, r.Background, r.Dir, r.Path = cur.status, cur.pid, s.dir, s.path
	r.Restarted, s.died = s.died, ""
	if s.current == cur {
		s.current = nil
	}
	return r
}

// withoutEcho removes what the terminal echoed of typed from the front of
// output: the text, or the prompt it was typed at and the text.
func withoutEcho(output, prompt, typed string) string {
	first, rest, _ := strings.Cut(output, "\n")
	line := strings.TrimRight(first, " ")
	typed = strings.TrimRight(typed, " ")
	if line == typed || prompt != "" && strings.HasPrefix(line, prompt) && strings.TrimSpace(line[len(prompt):]) == typed {
		return rest
	}
	return output
}
