package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Action is one action of a Journal. Its methods may be called concurrently; those
// that change it are for the caller that reserved it.
type Action struct {
	j *Journal

	// The lock of the journal guards the fields.
	in          Intent
	n           uint64
	begin, end  int64 // Unix nanoseconds; end is 0 before the end, and where it is not known
	begun, aged age   // of the journal at the begin, and at the end
	state       State
	outcome     uint8 // that Finish got
	effect      Effect
	left        uint64  // the state after it, see SetEffect
	change      *change // nil where none is kept
	recorded    bool    // the intent is on the disk
	cancelled   bool    // must not begin
	lost        bool    // something could not be recorded
	result      place
	hasResult   bool
	resultSize  int64       // of the result in bytes
	held        []*segment  // files of the log with records of this action
	firstHeld   [1]*segment // what held lies in while it is one file
	inline      []place     // records of output in the log
	inlined     int         // their bytes
	own         []*segment  // files with the rest of the output
	files       int         // that were ever made
	out         extent
	denied      bool          // see Deny
	input       int64         // one more than the bytes of input that were taken; 0 where none came
	gone        bool          // forgotten
	more        chan struct{} // closed at the next output or at the end; nil unless a caller waits
}

// place is where a record lies.
type place struct {
	segment *segment
	at      int64
	seq     uint64 // of output
	offset  int64  // of output
}

// extent is how much output there was.
type extent struct {
	seq     uint64
	end     int64
	streams [streams]int64
}

// Info is the record of an action without its output and result.
type Info struct {
	Intent
	N     uint64
	State State
	// Outcome is the number that Finish got, 0 before.
	Outcome uint8
	// Effect says whether anything changed.
	Effect Effect
	// After is the number of the state that the action left; 0 before its end, and where it is not known.
	After uint64
	Begin time.Time
	End   time.Time // zero before the end, and where it is not known
	// Output counts all bytes, also those that are not kept, Streams those of each
	// stream, and Stretches the stretches.
	Output    int64
	Streams   [streams]int64
	Stretches uint64
	// Result counts the bytes of the result.
	Result int64
	// Denied says that the network policy denied connections of the action.
	Denied bool
	// Lost says that a part of the action could not be recorded.
	Lost bool
}

// Info returns the present state.
func (a *Action) Info() Info {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	return a.info()
}

func (a *Action) info() Info {
	info := Info{Intent: a.in, N: a.n, State: a.state, Outcome: a.outcome, Effect: a.effect, Begin: time.Unix(0, a.begin), Output: a.out.end, Streams: a.out.streams, Stretches: a.out.seq, Result: a.resultSize, Denied: a.denied, Lost: a.lost}
	if a.end > 0 {
		info.End, info.After = time.Unix(0, a.end), a.left
	}
	return info
}

// ID returns the id, and N the number.
func (a *Action) ID() string { return a.in.ID }

// N returns the number, which counts from 1 and is never used twice.
func (a *Action) N() uint64 { return a.n }

// hold notes that a file has records of the action. The caller holds mu.
func (a *Action) hold(s *segment) {
	if slices.Contains(a.held, s) {
		return
	}
	if a.held == nil {
		a.held = a.firstHeld[:0]
	}
	a.held = append(a.held, s)
	s.refs++
}

// Queue records that the action waits for its turn.
func (a *Action) Queue() {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if a.state == Reserved && !a.recorded {
		a.record(a.intent(a.j.buf[:0], kindReserved))
	}
}

// Cancel keeps an action that is reserved from beginning, and returns whether a call did.
// Any caller may call it; the one that reserved the action still calls End.
func (a *Action) Cancel() bool {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if a.state == Reserved {
		a.cancelled = true
	}
	return a.cancelled
}

// Begin records that the action runs, or returns ErrCancelled where it must not, also
// because it ended before. Further calls have no effect.
func (a *Action) Begin() error {
	a.j.mu.Lock()
	if a.state != Reserved || a.cancelled {
		defer a.j.mu.Unlock()
		if a.cancelled || a.state.Ended() {
			return ErrCancelled
		}
		return nil
	}
	a.move(Running)
	if a.recorded {
		a.record(appendRecord(a.j.buf[:0], record{kind: kindRunning, n: a.n}, nil))
	} else {
		a.record(a.intent(a.j.buf[:0], kindRunning))
	}
	a.syncAndUnlock()
	return nil
}

// intent appends the record with which an action begins. The caller holds mu.
func (a *Action) intent(dst []byte, kind recordKind) []byte {
	a.j.intents = a.in.encode(a.j.intents[:0], a.begin)
	return appendRecord(dst, record{kind: kind, n: a.n}, a.j.intents)
}

// record writes records of the action. The caller holds mu.
func (a *Action) record(p []byte) (place, bool) {
	a.j.buf = p[:0]
	segment, at, err := a.j.write(a.j.log, a, p)
	if err == nil {
		a.recorded = true
	}
	return place{segment: segment, at: at}, err == nil
}

// move changes the state. The caller holds mu.
func (a *Action) move(state State) {
	a.j.counts[a.state]--
	a.j.counts[state]++
	a.state = state
}

// syncAndUnlock gives the lock back and returns once the written records last.
func (a *Action) syncAndUnlock() {
	s := a.j.log.current
	if !a.j.cfg.Sync || s == nil || a.j.log.dir.root == nil {
		a.j.mu.Unlock()
		return
	}
	file, size := s.file, s.size
	a.j.mu.Unlock()
	if err := s.sync(file, size); ignoreClosed(err) != nil { // a file that was closed was synced before
		a.j.mu.Lock()
		a.j.problem, a.lost = err, true
		a.j.mu.Unlock()
	}
}

// Finish records that the action is Done, with its result and a number below 8 that says how
// it went.
func (a *Action) Finish(outcome uint8, result []byte) { a.finish(Done, outcome, result) }

// TookInput records how many bytes of its input the program of the action took, which may be 0 where the
// input ended.
func (a *Action) TookInput(bytes int64) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if bytes+1 > a.input && !a.gone {
		a.input = bytes + 1
		a.record(appendRecord(a.j.buf[:0], record{kind: kindInput, n: a.n, at: bytes}, nil))
	}
}

// Deny records that the network policy denied connections of the action.
func (a *Action) Deny() {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if !a.denied && !a.gone {
		a.denied = true
		a.record(appendRecord(a.j.buf[:0], record{kind: kindDenied, n: a.n}, nil))
	}
}

// Input returns how many bytes of its input the program of the action took; false where no input came.
func (a *Action) Input() (bytes int64, ok bool) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	return max(a.input-1, 0), a.input > 0
}

// End records how the action ended: Done, Cancelled or Refused, with its result. One that
// began meanwhile is not Refused but Unknown.
func (a *Action) End(state State, result []byte) { a.finish(state, 0, result) }

func (a *Action) finish(state State, outcome uint8, result []byte) {
	a.j.mu.Lock()
	if a.state.Ended() {
		a.j.mu.Unlock()
		return
	}
	if state == Refused && a.state == Running {
		state = Unknown
	}
	a.end, a.aged, a.outcome, a.resultSize = time.Now().UnixNano(), a.j.age(), outcome, int64(len(result))
	a.move(state)
	p := a.j.buf[:0]
	if !a.recorded {
		p = a.intent(p, kindReserved)
	}
	detail := uint8(state) | outcome<<outcomeShift
	if a.effect == EffectNone {
		detail |= effectNone
	}
	ended := record{kind: kindEnded, detail: detail, n: a.n, at: a.end, inner: a.out.end, seq: a.out.seq}
	if len(a.own) > 0 {
		p = a.lengths(p)
	}
	if a.left > 0 {
		p = appendRecord(p, record{kind: kindAfter, n: a.n, inner: int64(a.left)}, nil) //nolint:gosec // it counts from 1
	}
	before := len(p)
	if a.j.text != a.j.log { // the result stays in memory
		if s, at, err := a.j.write(a.j.text, a, appendRecord(nil, record{kind: kindResult, n: a.n}, result)); err == nil {
			a.result, a.hasResult = place{segment: s, at: at}, len(result) > 0
		}
		a.record(appendRecord(p, ended, nil))
	} else if at, ok := a.record(appendRecord(p, ended, result)); ok {
		at.at += int64(before)
		a.result, a.hasResult = at, len(result) > 0
	}
	if cap(a.j.buf) > 1<<20 { // one large result does not make the journal large
		a.j.buf = nil
	}
	if n := len(a.own); n > 0 {
		a.j.text.dir.seal(a.own[n-1])
	}
	a.wake()
	a.j.forgetSome(a)
	a.syncAndUnlock()
}

// lengths appends a record without output for each stream, by which the length of the
// stream is known without reading files. The caller holds mu.
func (a *Action) lengths(dst []byte) []byte {
	for stream, length := range a.out.streams {
		if length > 0 {
			dst = appendRecord(dst, record{kind: kindOutput, detail: uint8(stream), n: a.n, at: a.out.end, inner: length, seq: a.out.seq}, nil)
		}
	}
	return dst
}

// Drop forgets an action that was refused, as if it never came. It must not have
// printed anything.
func (a *Action) Drop() {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if a.state.Ended() {
		return
	}
	if a.recorded {
		a.record(appendRecord(a.j.buf[:0], record{kind: kindDropped, n: a.n}, nil))
	}
	a.move(Refused)
	a.wake()
	a.j.unlist(a)
}

// wake wakes those that wait for output or for the end. The caller holds mu.
func (a *Action) wake() {
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
}

// Result returns the result of an action that ended, nil where none is known. The error
// says that it is no longer kept. An action whose result is damaged is Unknown from then on.
func (a *Action) Result() ([]byte, error) {
	a.j.mu.Lock()
	if !a.state.Ended() || !a.hasResult {
		a.j.mu.Unlock()
		return nil, nil
	}
	at := a.result
	r, err := a.j.dirOf(at.segment).open(at.segment)
	a.j.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	_, result, err := readPayload(r, at.at)
	if errors.Is(err, errDamaged) || errors.Is(err, io.EOF) {
		a.j.mu.Lock()
		defer a.j.mu.Unlock()
		a.j.note = damageNote(at.segment.name, at.at)
		if !a.gone {
			a.move(Unknown)
		}
		a.hasResult, a.resultSize, a.outcome = false, 0, 0
		return nil, nil
	}
	return result, err
}

// damageNote says where a journal is damaged.
func damageNote(name string, at int64) string {
	return fmt.Sprintf("the journal is damaged: %s cannot be read from byte %d on", name, at)
}
