package journal

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// age is the time during which processes have had a journal open. Times of the wall clock are for
// readers alone: an operator, or an agent with the right, may set that clock.
type age time.Duration

// markInterval is how exact ages are that another process reads.
const markInterval = age(time.Minute)

// age returns the age of now. The caller holds mu.
func (j *Journal) age() age { return j.loaded + age(time.Since(j.opened)) }

// mark returns a record of the age. The caller holds mu.
func (j *Journal) mark() []byte {
	j.marked = j.age()
	return appendRecord(nil, record{kind: kindAge, at: int64(j.marked)}, nil)
}

// idHash is the hash of an id.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
}

// unlist removes an action from the lists and its records from the counts of the
// files; files without records are removed. The caller holds mu.
func (j *Journal) unlist(a *Action) {
	delete(j.byID, a.in.ID)
	i, ok := slices.BinarySearchFunc(j.actions, a.n, func(a *Action, n uint64) int {
		switch {
		case a.n < n:
			return -1
		case a.n > n:
			return 1
		}
		return 0
	})
	if ok { // nearly always one of the first, or the last
		if i == len(j.actions)-1 {
			j.actions[i] = nil
			j.actions = j.actions[:i]
		} else {
			copy(j.actions[1:i+1], j.actions[:i])
			j.actions[0] = nil
			j.actions = j.actions[1:]
		}
	}
	j.counts[a.state]--
	j.unlistChange(a.change)
	j.release(a)
	for _, s := range a.own {
		j.drop(j.text.dir, s)
	}
	a.change, a.own, a.inline, a.hasResult, a.gone = nil, nil, nil, false, true
}

// release removes the records of an action from the counts of the files. The caller holds mu.
func (j *Journal) release(a *Action) {
	for _, s := range a.held {
		if s.refs--; s.refs == 0 && s != j.log.current && s != j.text.current {
			j.drop(j.dirOf(s), s)
		}
	}
	a.held = nil
}

// forgetSome forgets the oldest actions that ended until the bounds hold, but not last, whose
// caller has no answer yet: one result may be larger than all that is kept. The caller holds mu.
func (j *Journal) forgetSome(last *Action) {
	before := j.age() - age(j.cfg.MaxAge)
	j.forgetChanges(before)
	for i := 0; i < len(j.actions); {
		a := j.actions[i]
		if old := cmp.Or(a.aged, a.begun) < before; !old && len(j.actions) <= j.cfg.MaxActions && j.bytes <= j.cfg.MaxBytes {
			return
		}
		if !a.state.Ended() || a == last {
			i++
			continue
		}
		j.forget(a)
		j.forgetChanges(before) // they would keep the files, and all actions be forgotten for them
	}
}

// forget keeps no more of an action than that it was. The caller holds mu.
func (j *Journal) forget(a *Action) {
	j.remember(hashID(a.in.ID), a.n)
	j.unlist(a)
	j.forgottenCount++
}

const forgottenName = "forgotten"

// remember keeps the id of a forgotten action. The caller holds mu.
func (j *Journal) remember(id idHash, n uint64) {
	j.noteForgotten(id)
	if j.log.dir.root == nil {
		return
	}
	if j.forgottenFile == nil || j.forgottenFile.size > int64(2*j.cfg.MaxForgotten)*(recordHeader+int64(len(id))) {
		j.problem = j.rewriteForgotten()
		return
	}
	if err := j.forgottenFile.append(appendRecord(nil, record{kind: kindForgotten, n: n}, id[:])); err != nil {
		j.log.dir.seal(j.forgottenFile)
		j.forgottenFile, j.problem = nil, err // the next one writes them all
	}
}

// noteForgotten is remember without the file. The caller holds mu.
func (j *Journal) noteForgotten(id idHash) {
	if _, ok := j.forgotten[id]; ok {
		return
	}
	j.forgotten[id] = struct{}{}
	j.forgottenOrder = append(j.forgottenOrder, id)
	if len(j.forgottenOrder) > j.cfg.MaxForgotten {
		delete(j.forgotten, j.forgottenOrder[0])
		j.forgottenOrder = j.forgottenOrder[1:]
	}
}

// rewriteForgotten writes the file of forgotten ids anew. The caller holds mu.
func (j *Journal) rewriteForgotten() error {
	root := j.log.dir.root
	const temporary = forgottenName + ".new"
	_ = root.Remove(temporary) // of a process that died
	s, err := j.log.dir.create(temporary)
	if err != nil {
		return err
	}
	var p []byte
	for _, id := range j.forgottenOrder {
		p = appendRecord(p, record{kind: kindForgotten, n: j.next - 1}, id[:])
	}
	if err = s.append(p); err == nil && j.cfg.Sync {
		err = s.sync(s.file, s.size)
	}
	if err == nil {
		err = root.Rename(temporary, forgottenName)
	}
	if err != nil {
		j.log.dir.remove(s)
		return fmt.Errorf("writing the ids of forgotten actions: %w", err)
	}
	if j.forgottenFile != nil {
		j.log.dir.seal(j.forgottenFile)
	}
	s.name = forgottenName
	j.forgottenFile = s
	return nil
}
