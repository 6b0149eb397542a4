package journal

import (
	"cmp"
	"slices"
)

// Frozen is an action on its way to another program of the same process, which can be written
// as JSON. Most of it lies in the files of the journal.
type Frozen struct {
	Intent
	N          uint64
	Begin      int64
	State      State
	Recorded   bool
	Lost       bool
	Seq        uint64
	End        int64
	StreamEnds [streams]int64
	Input      int64 // as in Action
}

// Freeze returns the state of an action that has not ended, by which it goes on in a
// journal that another program of this process opens. Its cancellation is the caller's to repeat.
func (a *Action) Freeze() Frozen {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	return Frozen{
		Intent: a.in, N: a.n, Begin: a.begin, State: a.state, Recorded: a.recorded, Lost: a.lost,
		Seq: a.out.seq, End: a.out.end, StreamEnds: a.out.streams, Input: a.input,
	}
}

// revive lets actions go on, some of which may not be in the files. The caller holds mu, or
// is the only one.
func (j *Journal) revive(byN map[uint64]*Action) {
	if len(j.cfg.Living) == 0 {
		return
	}
	for _, f := range j.cfg.Living {
		a := byN[f.N]
		if a == nil {
			a = &Action{j: j, in: f.Intent, n: f.N, begin: f.Begin}
			j.byID[a.in.ID] = a
			j.actions = append(j.actions, a)
			f.Recorded = false
		} else if a.state.Ended() {
			continue
		}
		a.state, a.done = f.State, make(chan struct{})
		a.recorded, a.lost, a.input = f.Recorded, f.Lost, max(a.input, f.Input)
		a.out = extent{seq: f.Seq, end: f.End, streams: f.StreamEnds}
		j.counts[a.state]++
		j.next = max(j.next, a.n+1)
	}
	slices.SortFunc(j.actions, func(a, b *Action) int { return cmp.Compare(a.n, b.n) })
	j.cfg.Living = nil
}
