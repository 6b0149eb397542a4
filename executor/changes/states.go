package changes

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/hostpath"
)

var (
	// ErrNoState says that there never was a state with an id.
	ErrNoState = errors.New("there is no such state")
	// ErrStateGone says that a state is no longer kept.
	ErrStateGone = errors.New("the state is no longer kept")
)

const (
	statesName = "states"
	// maxStates bounds the file that is read, in bytes.
	maxStates = 16 << 20
)

// States are the states of a tracker by id: s1, s2 and so on. A state is kept as long as it is used; what is saved outlives
// the process. The methods may be called concurrently.
type States struct {
	t   *Tracker
	dir string

	mu   sync.Mutex
	all  map[uint64]*named
	next uint64
	last *named // the one that was added last
}

type named struct {
	n      uint64
	state  *State // nil for one of an earlier process until it is asked for
	sum    store.Sum
	saved  bool
	uses   int
	pinned int
}

// OpenStates opens the states of an earlier process in dir, which is for this process's user alone. They are kept if they are
// used until [States.Sweep].
func OpenStates(t *Tracker, dir string) (*States, error) {
	s := &States{t: t, dir: dir, all: map[uint64]*named{}, next: 1}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("reading the states in %q: %w", dir, err)
	}
	return s, nil
}

func (s *States) read() error {
	root, err := hostpath.OpenPrivate(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(statesName, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxStates))
	for lines.Scan() {
		id, text, _ := strings.Cut(lines.Text(), " ")
		n, ok := parseID(id)
		if !ok {
			continue // damaged by a power cut
		}
		s.next = max(s.next, n+1)
		sum, err := hex.DecodeString(text)
		if err == nil && len(sum) == len(store.Sum{}) {
			s.all[n] = &named{n: n, sum: store.Sum(sum), saved: true}
		}
	}
	return errors.Join(lines.Err(), f.Close())
}

func parseID(id string) (uint64, bool) {
	text, ok := strings.CutPrefix(id, "s")
	n, err := strconv.ParseUint(text, 10, 63)
	return n, ok && err == nil && n > 0 && stateID(n) == id
}

func stateID(n uint64) string { return "s" + strconv.FormatUint(n, 10) }

// Add uses a state, and returns its id: that of the last one that was added if it is the same.
func (s *States) Add(state *State) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.state != state || s.all[s.last.n] == nil {
		s.last = &named{n: s.next, state: state}
		s.all[s.next] = s.last
		s.next++
	}
	s.last.uses++
	return stateID(s.last.n)
}

// Keep uses a state once more. It fails with [ErrNoState] or [ErrStateGone].
func (s *States) Keep(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(id)
	if err == nil {
		k.uses++
	}
	return err
}

// Drop takes back one use of a state, which is forgotten after the last.
func (s *States) Drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, err := s.find(id); err == nil {
		if k.uses--; k.uses <= 0 {
			delete(s.all, k.n)
		}
	}
}

// Pin is Keep for a state that goes last where room is needed, and Unpin its Drop.
func (s *States) Pin(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(id)
	if err == nil {
		k.uses, k.pinned = k.uses+1, k.pinned+1
	}
	return err
}

// Unpin takes back one Pin.
func (s *States) Unpin(id string) {
	s.mu.Lock()
	if k, err := s.find(id); err == nil && k.pinned > 0 {
		k.pinned--
	}
	s.mu.Unlock()
	s.Drop(id)
}

func (s *States) find(id string) (*named, error) {
	n, ok := parseID(id)
	switch {
	case !ok || n >= s.next:
		return nil, fmt.Errorf("%w: %q", ErrNoState, id)
	case s.all[n] == nil:
		return nil, fmt.Errorf("%w: %s", ErrStateGone, id)
	}
	return s.all[n], nil
}

// Get returns a state. It fails with [ErrNoState] or [ErrStateGone].
func (s *States) Get(id string) (*State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(id)
	if err != nil || k.state != nil {
		return k.get(), err
	}
	state, err := s.t.Load(k.sum)
	if errors.Is(err, store.ErrNotKept) || errors.Is(err, errState) {
		return nil, fmt.Errorf("%w: %s", ErrStateGone, id)
	}
	if err != nil {
		return nil, err
	}
	k.state = state
	return state, nil
}

func (k *named) get() *State {
	if k == nil {
		return nil
	}
	return k.state
}

// Sweep forgets the states that are not used.
func (s *States) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(_ uint64, k *named) bool { return k.uses == 0 })
}

// Capture keeps the contents of the last state, see [Tracker.KeepContents], and saves all states for the next process.
// Where the store is full, the oldest states go, those that are pinned last; it fails with [store.ErrFull] if that was not
// enough.
func (s *States) Capture(ctx context.Context, hurry bool) error {
	if s.t.cfg.Store == nil {
		return nil
	}
	for {
		err := s.t.KeepContents(ctx, hurry)
		if err == nil {
			err = s.save()
		}
		if !errors.Is(err, store.ErrFull) {
			return err
		}
		if gave, failed := s.giveWay(); failed != nil || !gave {
			return errors.Join(err, failed)
		}
	}
}

// save saves the states and their list.
func (s *States) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(s.all)) {
		k := s.all[n]
		if k.saved {
			continue
		}
		sum, err := s.t.Save(k.state)
		if err != nil {
			return err
		}
		k.sum, k.saved = sum, true
	}
	return s.write()
}

// write writes the list. s.mu is held.
func (s *States) write() error {
	root, err := hostpath.OpenPrivate(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var text []byte
	for _, n := range slices.Sorted(maps.Keys(s.all)) {
		if k := s.all[n]; k.saved {
			text = fmt.Appendf(text, "%s %x\n", stateID(n), k.sum)
		}
	}
	text = fmt.Appendf(text, "%s\n", stateID(s.next-min(s.next-1, 1))) // the last id that was given
	err = errors.Join(ignoreMissing(root.Remove(statesName+".tmp")), writeNew(root, statesName+".tmp", text))
	if err == nil {
		err = root.Rename(statesName+".tmp", statesName)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}

// giveWay forgets the older half of the states, and reports whether that may help.
func (s *States) giveWay() (bool, error) {
	s.mu.Lock()
	var old, pinned []uint64
	for _, n := range slices.Sorted(maps.Keys(s.all)) {
		if s.all[n].pinned > 0 {
			pinned = append(pinned, n)
		} else {
			old = append(old, n)
		}
	}
	if len(old) == 0 {
		old = pinned
	}
	for _, n := range old[:(len(old)+1)/2] {
		delete(s.all, n)
	}
	var states []*State
	var saved []store.Sum
	for _, k := range s.all {
		if k.saved {
			saved = append(saved, k.sum)
		}
		states = append(states, k.state)
	}
	s.mu.Unlock()
	freed, err := s.t.Reclaim(states, saved, nil)
	return len(old) > 0 || freed > 0, err
}
