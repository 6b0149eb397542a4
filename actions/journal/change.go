package journal

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Effect says whether an action changed anything.
type Effect uint8

// The effects.
const (
	EffectUnknown Effect = iota
	EffectNone
	EffectSome
)

// maxLoose bounds the changes of no action that are kept.
const maxLoose = 1000

// Change is a record of changes, by an action or by none.
type Change struct {
	// Seq counts all changes, from 1.
	Seq uint64
	// N is the number of the action; 0 for none.
	N    uint64
	Time time.Time
	// State is the number of a state, which the journal keeps the largest of, also of [Action.SetEffect].
	State uint64
	// Data are the bytes that the caller recorded.
	Data []byte
}

// change is a kept Change.
type change struct {
	seq, n, state uint64
	time          int64
	age           age     // of the journal
	holder        *Action // whose files it is in: of the action n, or of no action
	at            place
}

// Change records the changes by the action, once, before its end.
func (a *Action) Change(state uint64, data []byte) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if a.gone || a.state.Ended() || a.change != nil {
		return
	}
	if !a.recorded {
		a.record(a.intent(a.j.buf[:0], kindReserved))
	}
	a.change = a.j.recordChange(a, state, data)
}

// SetEffect says whether the action changed anything, and the number of the state that it left, 0 where that is not known. Both are
// recorded with the end; after it the state alone is.
func (a *Action) SetEffect(e Effect, after uint64) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	a.effect, a.left = e, after
	a.j.lastState = max(a.j.lastState, after)
	if a.state.Ended() && !a.gone && after > 0 {
		a.record(appendRecord(a.j.buf[:0], record{kind: kindAfter, n: a.n, inner: int64(after)}, nil)) //nolint:gosec // it counts from 1
	}
}

// Changed returns the changes by the action; false where they are not kept.
func (a *Action) Changed() (Change, bool) {
	a.j.mu.Lock()
	c := a.change
	a.j.mu.Unlock()
	if c == nil {
		return Change{}, false
	}
	change, err := a.j.readChange(c)
	return change, err == nil
}

// Note records a change of no action.
func (j *Journal) Note(state uint64, data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recordChange(&Action{j: j}, state, data)
	j.forgetSome(nil)
}

// LastState returns the largest number of a state in the records, also in those that were forgotten since the start.
func (j *Journal) LastState() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lastState
}

// Changes returns at most limit changes with smaller numbers than before (0: all), the newest first. Those that are
// forgotten meanwhile are left out.
func (j *Journal) Changes(before uint64, limit int) []Change {
	j.mu.Lock()
	end := len(j.changes)
	if before > 0 {
		end, _ = j.findChange(before)
	}
	kept := slices.Clone(j.changes[max(end-limit, 0):end])
	j.mu.Unlock()
	list := make([]Change, 0, len(kept))
	for _, c := range slices.Backward(kept) {
		if change, err := j.readChange(c); err == nil {
			list = append(list, change)
		}
	}
	return list
}

// findChange returns the place of a change in the list. The caller holds mu.
func (j *Journal) findChange(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(j.changes, seq, func(c *change, seq uint64) int { return cmp.Compare(c.seq, seq) })
}

// recordChange writes a change and lists it; nil where it cannot be written. The caller holds mu.
func (j *Journal) recordChange(holder *Action, state uint64, data []byte) *change {
	c := &change{seq: j.lastChange + 1, n: holder.n, state: state, holder: holder}
	c.time, c.age = time.Now().UnixNano(), j.age()
	r := record{kind: kindChange, n: c.n, at: c.time, inner: int64(state), seq: c.seq} //nolint:gosec // it counts from 1
	s, at, err := j.write(j.text, holder, appendRecord(nil, r, data))
	if err != nil {
		return nil
	}
	c.at = place{segment: s, at: at}
	j.listChange(c)
	return c
}

// listChange puts a change at the end of the list. The caller holds mu.
func (j *Journal) listChange(c *change) {
	j.changes = append(j.changes, c)
	if c.n == 0 {
		j.loose++
	}
	j.lastChange, j.lastState = max(j.lastChange, c.seq), max(j.lastState, c.state)
}

// unlistChange takes a change out of the list; nil for none. The caller holds mu.
func (j *Journal) unlistChange(c *change) {
	if c == nil {
		return
	}
	if i, ok := j.findChange(c.seq); ok && j.changes[i] == c {
		j.changes = slices.Delete(j.changes, i, i+1)
		if c.n == 0 {
			j.loose--
		}
	}
}

// forgetChanges forgets the changes of no action that were recorded before an age of the journal or before an action
// that was forgotten, and of the others the oldest beyond maxLoose. The caller holds mu.
func (j *Journal) forgetChanges(before age) {
	if len(j.forgottenOrder) > 0 && len(j.actions) > 0 {
		before = max(before, j.actions[0].begun)
	}
	for i := 0; i < len(j.changes) && j.loose > 0; {
		c := j.changes[i]
		if c.n != 0 {
			i++
			continue
		}
		if c.age >= before && j.loose <= maxLoose {
			return
		}
		j.unlistChange(c)
		j.release(c.holder)
	}
}

// readChange reads the data of a change.
func (j *Journal) readChange(c *change) (Change, error) {
	j.mu.Lock()
	if len(c.holder.held) == 0 {
		j.mu.Unlock()
		return Change{}, ErrForgotten
	}
	file, err := j.dirOf(c.at.segment).open(c.at.segment)
	j.mu.Unlock()
	if err != nil {
		return Change{}, err
	}
	defer file.Close()
	r, data, err := readPayload(file, c.at.at)
	if err == nil && r.kind != kindChange {
		err = errDamaged
	}
	if err != nil {
		return Change{}, errors.Join(ErrForgotten, err)
	}
	return Change{Seq: c.seq, N: c.n, Time: time.Unix(0, c.time), State: c.state, Data: data}, nil
}

// applyChange takes over the record of a change.
func (j *loader) applyChange(s *segment, r record, at int64) {
	j.lastChange, j.lastState = max(j.lastChange, r.seq), max(j.lastState, uint64(r.inner)) //nolint:gosec // never negative
	holder := &Action{j: j.Journal}
	if r.n > 0 {
		holder = j.byN[r.n]
		if holder == nil || holder.gone || holder.change != nil {
			return
		}
	}
	c := &change{seq: r.seq, n: r.n, state: uint64(r.inner), time: r.at, age: j.loaded, holder: holder} //nolint:gosec // never negative
	c.at = place{segment: s, at: at}
	if r.n > 0 {
		holder.change, holder.effect, holder.left = c, EffectSome, c.state
	}
	holder.hold(s)
	j.listChange(c)
}
