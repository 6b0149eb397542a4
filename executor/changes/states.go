package changes

import (
	"cmp"
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/hostpath"
)

var (
	// ErrNoState says that there never was a state with a number.
	ErrNoState = errors.New("there is no such state")
	// ErrStateGone says that a state is no longer kept.
	ErrStateGone = errors.New("the state is no longer kept")
	// ErrNoPin says that there is no pin of a name.
	ErrNoPin = errors.New("there is no pin of that name")
)

const (
	statesName = "states"
	// maxStatesFile bounds the list of states that is read, in bytes.
	maxStatesFile = 16 << 20

	defaultMaxStates     = 1000
	defaultMaxStateBytes = 64 << 20
)

// StatesConfig says which states are kept, and where.
type StatesConfig struct {
	// Dir is for this process's user alone, and has what outlives the process; "" keeps the states in memory only, as does a
	// tracker without a store.
	Dir string
	// MaxStates bounds the states without a pin; 0 means 1,000.
	MaxStates int
	// MaxBytes bounds the memory of the states beside the last one; 0 means 64 MiB. Those that are saved are read again.
	MaxBytes int
	// Also reports whether others need a content of the store; nil means no.
	Also func(store.Sum) bool
}

// Pin is a state with a name.
type Pin struct {
	Name  string
	State uint64
	Time  time.Time
	// Expires is until when the pin stays also where the store has no room, so that later states go before it; zero means that it
	// goes with the others.
	Expires time.Time
}

// States are the states of a tracker by number, from 1. The oldest ones go where there are too many; those with a pin stay,
// and go last where the store has no room. The methods may be called concurrently.
type States struct {
	t   *Tracker
	cfg StatesConfig

	saving sync.Mutex // held while states are saved, or the store loses what is unused; it comes before mu

	mu      sync.Mutex
	all     []*numbered // by number
	pins    map[string]Pin
	next    uint64
	bytes   int // of the states in memory beside the last one
	earlier uint64
	evicted int64
	// rewrite: the file must be written anew, because appending unwritten is not enough, or because its last line may be torn.
	rewrite   bool
	unwritten []*numbered // saved, and not in the written list as they are
	lines     int         // that were added to the written list since it was written as a whole
}

type numbered struct {
	n     uint64
	state *State // nil if it is saved and not in memory
	own   int    // the bytes of memory that the next one does not share
	sum   store.Sum
	saved bool
	// whole is set once the state was saved after its contents were kept: before, the saved state does not know all of them.
	whole bool
}

// OpenStates opens the states of a tracker, with those that an earlier process saved.
func OpenStates(t *Tracker, cfg StatesConfig) (*States, error) {
	cfg.MaxStates = cmp.Or(cfg.MaxStates, defaultMaxStates)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, defaultMaxStateBytes)
	s := &States{t: t, cfg: cfg, pins: map[string]Pin{}, next: 1, rewrite: true}
	if !s.saves() {
		return s, nil
	}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("reading the states in %q: %w", cfg.Dir, err)
	}
	return s, nil
}

func (s *States) saves() bool { return s.cfg.Dir != "" && s.t.cfg.Store != nil }

func (s *States) read() error {
	root, err := hostpath.OpenPrivate(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := openOwn(root, statesName, os.O_RDONLY)
	switch {
	case errors.Is(err, errReplaced):
		return nil // the next list takes its place
	case err != nil:
		return ignoreMissing(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxStatesFile))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	of := ""
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "root %q", &of); err != nil {
			s.readLine(strings.TrimSuffix(line, "\n")) // a power cut may have damaged it
		}
	}
	if s.t != nil && of != s.t.cfg.Root { // another tree, which nothing here may become
		s.all = nil
	}
	slices.Reverse(s.all) // a later line is right
	slices.SortStableFunc(s.all, func(a, b *numbered) int { return cmp.Compare(a.n, b.n) })
	s.all = slices.CompactFunc(s.all, func(a, b *numbered) bool { return a.n == b.n })
	maps.DeleteFunc(s.pins, func(_ string, p Pin) bool { return s.find(p.State) == nil })
	if n := len(s.all); n > 0 {
		s.earlier = s.all[n-1].n
	}
	return nil
}

func (s *States) readLine(line string) {
	var p Pin
	var at, expires int64
	note := ""
	if n, _ := fmt.Sscanf(line, "pin %q %d %d %q %d", &p.Name, &p.State, &at, &note, &expires); n >= 4 { // of earlier servers it has 4
		if strings.HasPrefix(p.Name, ".") { // an attempt or a bisect of such a server, which no client can end
			return
		}
		if p.Time = time.Unix(0, at); expires > 0 {
			p.Expires = time.Unix(0, expires)
		}
		s.pins[p.Name] = p
		return
	}
	number, text, _ := strings.Cut(line, " ")
	n, err := strconv.ParseUint(number, 10, 62) // so that those after it have 63 bits
	if err != nil || n == 0 {
		return
	}
	s.next = max(s.next, n+1)
	if sum, err := hex.DecodeString(text); err == nil && len(sum) == len(store.Sum{}) {
		s.all = append(s.all, &numbered{n: n, sum: store.Sum(sum), saved: true})
	}
}

// Skip leaves out some numbers after those that were given, and after that of a recorded state, so that one that an earlier process
// gave and did not save is not given again.
func (s *States) Skip(recorded, numbers uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := max(s.next-1, recorded); last > 0 {
		s.next = last + 1 + numbers
	}
}

// Earlier returns the last state of an earlier process; 0 for none.
func (s *States) Earlier() uint64 { return s.earlier }

// Add returns the number of a state: that of the last one if it is the same.
func (s *States) Add(state *State) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.all); n > 0 {
		last := s.all[n-1]
		if last.state == state {
			return last.n
		}
		if last.state != nil {
			last.own = last.state.Own(state)
			s.bytes += last.own
		}
	}
	s.all = append(s.all, &numbered{n: s.next, state: state})
	s.next++
	s.trim()
	return s.next - 1
}

// Resume has the last state of an earlier process be the present one, which is the same. It comes before Add.
func (s *States) Resume(state *State) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.all[len(s.all)-1]
	last.state = state
	return last.n
}

// trim forgets the oldest states beyond the bounds. s.mu is held.
func (s *States) trim() {
	pinned := s.pinned()
	for i := 0; len(s.all)-len(pinned) > s.cfg.MaxStates && i < len(s.all)-1; {
		if pinned[s.all[i].n] {
			i++
			continue
		}
		s.forget(i)
	}
	defer func() {
		if first := s.all[0]; s.bytes > s.cfg.MaxBytes && first.n == 1 && !first.saved && len(s.all) > 1 {
			s.forget(0)
		}
	}()
	for i := 0; s.bytes > s.cfg.MaxBytes && i < len(s.all)-1; {
		switch k := s.all[i]; {
		case k.saved:
			k.state = nil
			s.bytes -= k.own
			k.own = 0
			i++
		case pinned[k.n]:
			i++
		default:
			s.forget(i)
		}
	}
}

func (s *States) pinned() map[uint64]bool {
	pinned := map[uint64]bool{}
	if len(s.all) > 0 && s.all[0].n == 1 { // the beginning
		pinned[1] = true
	}
	for _, p := range s.pins {
		pinned[p.State] = true
	}
	return pinned
}

// forget forgets the state at a place. s.mu is held.
func (s *States) forget(i int) {
	s.bytes -= s.all[i].own
	s.all = slices.Delete(s.all, i, i+1)
}

// find returns nil for a state that is not kept. s.mu is held.
func (s *States) find(n uint64) *numbered {
	i, ok := slices.BinarySearchFunc(s.all, n, func(k *numbered, n uint64) int { return cmp.Compare(k.n, n) })
	if !ok {
		return nil
	}
	return s.all[i]
}

// Evicted is how many states went because the store had no room.
func (s *States) Evicted() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicted
}

// Known reports whether a state is kept, and whether its number was ever given.
func (s *States) Known(n uint64) (kept, given bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(n) != nil, n > 0 && n < s.next
}

// Get returns a state. It fails with [ErrNoState] or [ErrStateGone].
func (s *States) Get(n uint64) (*State, error) {
	s.mu.Lock()
	k := s.find(n)
	if k == nil {
		defer s.mu.Unlock()
		if n == 0 || n >= s.next {
			return nil, ErrNoState
		}
		return nil, ErrStateGone
	}
	state, sum := k.state, k.sum
	s.mu.Unlock()
	if state != nil {
		return state, nil
	}
	state, err := s.t.Load(sum)
	if errors.Is(err, store.ErrNotKept) || errors.Is(err, errState) {
		return nil, ErrStateGone
	}
	return state, err
}

// Pin keeps a state by a name until Unpin, also for the next process, in the place of what has the name. It fails with
// [ErrNoState], [ErrStateGone] or [store.ErrFull].
func (s *States) Pin(p Pin) error {
	s.mu.Lock()
	if s.find(p.State) == nil {
		defer s.mu.Unlock()
		if p.State == 0 || p.State >= s.next {
			return ErrNoState
		}
		return ErrStateGone
	}
	before, replaced := s.pins[p.Name]
	s.pins[p.Name], s.rewrite = p, true
	s.mu.Unlock()
	err := s.save(nil, p.State)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.pins, p.Name); replaced {
			s.pins[p.Name] = before
		}
		s.rewrite = true
	}
	return err
}

// Unpin takes back a Pin. It fails with [ErrNoPin], and with [store.ErrFull] where it has done that and not all states are saved.
func (s *States) Unpin(name string) error {
	s.mu.Lock()
	_, ok := s.pins[name]
	delete(s.pins, name)
	s.rewrite = s.rewrite || ok
	s.mu.Unlock()
	if !ok {
		return ErrNoPin
	}
	return s.save(nil, 0)
}

// Pins returns all pins, the oldest first.
func (s *States) Pins() []Pin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.pins), func(a, b Pin) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Name, b.Name)) })
}

// Capture keeps the contents of the last state, see [Tracker.KeepContents], and saves all states for the next process.
// Where the store is full, the oldest states go, those with a pin last and those with one that did not expire never; it
// fails with [store.ErrFull] if that was not enough.
func (s *States) Capture(ctx context.Context, hurry bool) error {
	if s.t.cfg.Store == nil {
		return nil
	}
	for {
		s.mu.Lock()
		kept := slices.Clone(s.all)
		s.mu.Unlock()
		err := s.t.KeepContents(ctx, hurry)
		if err == nil {
			err = s.save(kept, 0)
		}
		if !errors.Is(err, store.ErrFull) {
			return err
		}
		if gave, failed := s.giveWay(); failed != nil || !gave {
			return errors.Join(err, failed)
		}
	}
}

// Save saves all states for the next process, whose contents it does not keep. It fails with [store.ErrFull].
func (s *States) Save() error { return s.save(nil, 0) }

// save saves the states that are not saved, or one of them unless it is 0, those whose contents were kept since they were saved, and
// the list, also where there is no room for states: the next process is not to find what was unpinned.
func (s *States) save(kept []*numbered, only uint64) error {
	if !s.saves() {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	var work []*numbered
	for _, k := range s.all {
		if !k.saved && (only == 0 || k.n == only) || !k.whole && k.state != nil && slices.Contains(kept, k) {
			work = append(work, k)
		}
	}
	s.mu.Unlock()
	var failed error
	for _, k := range work {
		s.mu.Lock()
		state := k.state
		s.mu.Unlock()
		if state == nil { // it was saved, and gave its memory back
			continue
		}
		sum, err := s.t.Save(state) // without mu, which actions wait for
		if failed = err; err != nil {
			break
		}
		s.mu.Lock()
		if !k.saved || k.sum != sum {
			s.unwritten = append(s.unwritten, k)
		}
		k.sum, k.saved, k.whole = sum, true, slices.Contains(kept, k)
		s.mu.Unlock()
	}
	return errors.Join(failed, s.write())
}

// write writes the list, or adds the states that it lacks: there is one after each action that changed something.
func (s *States) write() error {
	s.mu.Lock()
	whole := s.rewrite || s.lines+len(s.unwritten) > s.cfg.MaxStates
	var text []byte
	switch {
	case whole:
		text = s.list()
	case len(s.unwritten) > 0:
		text = s.appendStates(nil, s.unwritten)
	default:
		s.mu.Unlock()
		return nil
	}
	if s.lines += len(s.unwritten); whole {
		s.lines = 0
	}
	s.rewrite, s.unwritten = false, nil
	s.mu.Unlock()
	err := s.put(text, whole)
	if err != nil {
		s.mu.Lock()
		s.rewrite = true
		s.mu.Unlock()
		if !whole {
			return s.write()
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}

// put writes a text in the place of the list, or after it.
func (s *States) put(text []byte, whole bool) error {
	root, err := hostpath.OpenPrivate(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if !whole {
		f, err := openOwn(root, statesName, os.O_WRONLY|os.O_APPEND)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		return errors.Join(err, f.Close())
	}
	return replaceOwn(root, statesName, text)
}

// list returns the list as a text. s.mu is held.
func (s *States) list() []byte {
	const line = 80 // more bytes than that of a state has
	text := fmt.Appendf(make([]byte, 0, line*(len(s.all)+1)), "root %q\n", s.t.cfg.Root)
	text = s.appendStates(text, s.all)
	for _, name := range slices.Sorted(maps.Keys(s.pins)) {
		p := s.pins[name]
		expires := int64(0)
		if !p.Expires.IsZero() {
			expires = p.Expires.UnixNano()
		}
		text = fmt.Appendf(text, "pin %q %d %d \"\" %d\n", p.Name, p.State, p.Time.UnixNano(), expires)
	}
	return text
}

// appendStates adds a line for each state that is saved, and one with the last number that was given. s.mu is held.
func (s *States) appendStates(text []byte, states []*numbered) []byte {
	for _, k := range states {
		if k.saved {
			text = append(strconv.AppendUint(text, k.n, 10), ' ')
			text = append(hex.AppendEncode(text, k.sum[:]), '\n')
		}
	}
	if s.next > 1 {
		text = append(strconv.AppendUint(text, s.next-1, 10), '\n')
	}
	return text
}

// giveWay forgets the older half of the states, and reports whether that may help.
func (s *States) giveWay() (bool, error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	without := func(pinned map[uint64]bool) []*numbered {
		return slices.DeleteFunc(slices.Clone(s.all[:max(len(s.all)-1, 0)]), func(k *numbered) bool { return pinned[k.n] })
	}
	old := without(s.pinned())
	if len(old) == 0 {
		firm := map[uint64]bool{}
		for _, p := range s.pins {
			firm[p.State] = firm[p.State] || time.Now().Before(p.Expires)
		}
		old = without(firm)
	}
	old = old[:(len(old)+1)/2]
	for _, k := range old {
		if i := slices.Index(s.all, k); i >= 0 {
			s.forget(i)
			s.evicted++
		}
	}
	maps.DeleteFunc(s.pins, func(_ string, p Pin) bool { return s.find(p.State) == nil })
	s.mu.Unlock()
	freed, err := s.reclaim()
	return len(old) > 0 || freed > 0, err
}

// Reclaim has the store lose its unused contents, see [Tracker.Reclaim], and returns how many bytes that freed.
func (s *States) Reclaim() (freed int64, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.reclaim()
}

// reclaim is Reclaim while s.saving is held.
func (s *States) reclaim() (int64, error) {
	var states []*State
	var saved []store.Sum
	s.mu.Lock()
	s.rewrite = true // without those whose contents go
	for _, k := range s.all {
		if k.saved {
			saved = append(saved, k.sum)
		}
		states = append(states, k.state)
	}
	s.mu.Unlock()
	return s.t.Reclaim(states, saved, s.cfg.Also)
}
