package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/filelock"
)

// Config says where and how much a Journal keeps. The zero value keeps everything in
// memory, with the default bounds.
type Config struct {
	// Dir is the directory, made with mode 0700; empty means memory.
	Dir string
	// Sync makes records survive a loss of power: Begin and End return when they are on
	// the disk.
	Sync bool
	// NoText keeps texts, output and results in memory only.
	NoText bool
	// MaxBytes bounds the journal; 0 means 256 MiB, and 32 MiB where texts are in memory. The
	// records of running actions are kept even beyond it.
	MaxBytes int64
	// MaxActions bounds the actions that are kept; 0 means 10,000.
	MaxActions int
	// MaxAge is how long an action is kept after its end; 0 means 7 days. Only time counts during which a process
	// has the journal open, by the monotonic clock: setting the clock of the machine changes nothing.
	MaxAge time.Duration
	// MaxOutput bounds the output of one action, of which the first and the last half
	// are kept; 0 means 16 MiB.
	MaxOutput int64
	// MaxForgotten bounds the ids that are refused after their actions were
	// forgotten; 0 means 100,000.
	MaxForgotten int
}

// Errors of a Journal.
var (
	// ErrLocked reports that another process uses the directory.
	ErrLocked = errors.New("another server uses the journal")
	// ErrOther reports an id that came with another body.
	ErrOther = errors.New("the id belongs to another action")
	// ErrCancelled reports an action that must not begin.
	ErrCancelled = errors.New("the action was cancelled")
	// ErrForgotten reports an action whose text is no longer kept.
	ErrForgotten = errors.New("the action is forgotten")
)

// State is where an action is in its life.
type State uint8

// The states.
const (
	Reserved  State = iota + 1 // waits for its turn
	Running                    // began
	Done                       // ended, with a result
	Cancelled                  // was cancelled before it began
	Refused                    // did not run, because the process died before it began
	Unknown                    // the process died while it ran
)

// String returns the state in one lower-case word.
func (s State) String() string {
	names := [...]string{"", "reserved", "running", "done", "cancelled", "refused", "unknown"}
	if int(s) >= len(names) {
		return ""
	}
	return names[s]
}

// Ended reports whether nothing comes after the state.
func (s State) Ended() bool { return s > Running }

// Intent describes an action before it begins.
type Intent struct {
	// ID is the id, not empty.
	ID string
	// Digest identifies the body.
	Digest [32]byte
	// Kind, Session and Form are words for the reader.
	Kind, Session, Form string
	// Text describes the action for people.
	Text string
}

// Journal keeps actions. Its methods may be called concurrently. It owns no
// goroutines.
type Journal struct {
	cfg    Config
	unlock func()

	opened time.Time // by this process

	mu             sync.Mutex
	loaded         age // that the journal had then
	marked         age // the last one that was recorded
	log            *log
	text           *log // log, unless texts are kept in memory only
	texts          texts
	byID           map[string]*Action
	actions        []*Action // by n
	next           uint64
	changes        []*change // by seq
	loose          int       // of changes, of no action
	lastChange     uint64
	lastState      uint64
	bytes          int64
	forgotten      map[idHash]struct{}
	forgottenOrder []idHash
	forgottenFile  *segment
	forgottenCount uint64
	writes         uint64
	writing        time.Duration
	counts         [Unknown + 1]int
	problem        error  // why the last write failed
	note           string // what is wrong since the start
	buf            []byte
	intents        []byte // for the payload of one record
	closed         bool
}

// texts keeps short texts together. Each in an object of its own would keep the memory around it: the runtime gives
// back pages without objects alone, and those of other requests lay between.
type texts struct{ current strings.Builder }

const (
	// textsSize is how many bytes are kept together, until the last action with one of them is forgotten.
	textsSize = 4 << 10
	// maxKept is the longest text that is copied.
	maxKept = 256
)

// keep returns a copy of a short text, or the text.
func (t *texts) keep(text string) string {
	if len(text) > maxKept {
		return text
	}
	begin := t.current.Len()
	if begin+len(text) > t.current.Cap() {
		t.current, begin = strings.Builder{}, 0
		t.current.Grow(textsSize)
	}
	t.current.WriteString(text)
	return t.current.String()[begin:]
}

// log is a sequence of files.
type log struct {
	dir     dir
	current *segment
	number  uint64
}

// Open opens a journal, and makes its directory if it is not there. The error is
// ErrLocked or ErrNewer where the directory must not be used; a damaged journal is read
// as far as possible, and [Journal.Problem] reports it. The caller must call Close.
func Open(cfg Config) (*Journal, error) {
	j, load, err := Begin(cfg)
	if err == nil {
		err = load()
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

// Begin is the first half of [Open], after which the directory is this process's. The
// journal is not used before load, the second half, has read the files and returned nil.
func Begin(cfg Config) (j *Journal, load func() error, err error) {
	inMemory := cfg.Dir == ""
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, map[bool]int64{false: 256 << 20, true: 32 << 20}[inMemory || cfg.NoText])
	cfg.MaxActions = cmp.Or(cfg.MaxActions, 10_000)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 7*24*time.Hour)
	cfg.MaxOutput = cmp.Or(cfg.MaxOutput, 16<<20)
	cfg.MaxForgotten = cmp.Or(cfg.MaxForgotten, 100_000)
	j = &Journal{
		cfg: cfg, unlock: func() {}, next: 1, log: &log{}, opened: time.Now(),
		byID: map[string]*Action{}, forgotten: map[idHash]struct{}{},
	}
	j.text = j.log
	if inMemory {
		return j, func() error { return nil }, nil
	}
	root, err := openDir(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	var unlock func()
	err = filelock.Outlast(func() (err error) {
		unlock, err = filelock.TryLock(root, "lock")
		return err
	})
	if err != nil {
		_ = root.Close()
		if errors.Is(err, filelock.ErrLocked) {
			return nil, nil, fmt.Errorf("%s: %w", cfg.Dir, ErrLocked)
		}
		return nil, nil, err
	}
	j.unlock = func() {
		unlock()
		_ = root.Close() // nothing is written to it
	}
	j.log.dir.root = root
	if cfg.NoText {
		j.text = &log{}
	}
	return j, func() error {
		if err := j.load(); err != nil {
			j.unlock()
			return fmt.Errorf("opening the journal %s: %w", cfg.Dir, err)
		}
		return nil
	}, nil
}

// openDir makes and opens a directory that no other user can read.
func openDir(name string) (*os.Root, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("making the journal: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	info, err := root.Stat(".")
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case ok && int(stat.Uid) != os.Geteuid():
			err = fmt.Errorf("the journal %s belongs to another user: give another --state-dir", name)
		case info.Mode().Perm()&0o077 != 0:
			err = root.Chmod(".", 0o700)
		}
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// Close closes the files. Actions that run are unknown when the directory is opened again.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	if s := j.log.current; s != nil && j.log.dir.root != nil {
		_ = s.append(j.mark()) // so that the time since the last record counts
	}
	j.closed = true
	var err error
	for _, s := range []*segment{j.log.current, j.text.current, j.forgottenFile} {
		if s != nil && s.file != nil {
			err = errors.Join(err, ignoreClosed(s.file.Close()))
		}
	}
	for _, a := range j.actions {
		for _, s := range a.own {
			if s.file != nil {
				err = errors.Join(err, ignoreClosed(s.file.Close()))
			}
		}
	}
	j.unlock()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// Problem says in a sentence why records will not last; "" where they will.
func (j *Journal) Problem() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.problem != nil:
		return "actions are not recorded: " + j.problem.Error()
	case j.cfg.Dir == "":
		return "actions are recorded in memory only, and are lost when the server ends"
	}
	return j.note
}

// Failing reports whether the last write failed, so that an action that begins now will
// probably not be recorded.
func (j *Journal) Failing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.problem != nil
}

// Stats counts the records of a journal.
type Stats struct {
	States    map[State]int
	Bytes     int64
	Oldest    time.Time // when the oldest action that is kept began; zero without actions
	Forgotten uint64    // since the start, as are:
	Writes    uint64
	Writing   time.Duration
}

// Stats returns the counts of now.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Stats{States: map[State]int{}, Bytes: j.bytes, Forgotten: j.forgottenCount, Writes: j.writes, Writing: j.writing}
	for state := Reserved; state <= Unknown; state++ {
		s.States[state] = j.counts[state]
	}
	if len(j.actions) > 0 {
		s.Oldest = time.Unix(0, j.actions[0].begin)
	}
	return s
}

// Reserve returns the action of an id, and whether it is a new one, which the
// caller then owns: it must call End or Drop. ErrOther says that the id came with
// another digest, and ErrForgotten that its action is no longer kept.
func (j *Journal) Reserve(in Intent) (a *Action, isNew bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.byID[in.ID]; a != nil {
		if a.in.Digest != in.Digest {
			return a, false, ErrOther
		}
		return a, false, nil
	}
	if len(j.forgotten) > 0 {
		if _, ok := j.forgotten[hashID(in.ID)]; ok {
			return nil, false, ErrForgotten
		}
	}
	if j.cfg.NoText {
		in.Text = ""
	}
	in.ID, in.Session, in.Text = j.texts.keep(in.ID), j.texts.keep(in.Session), j.texts.keep(in.Text)
	a = &Action{j: j, in: in, n: j.next, begin: time.Now().UnixNano(), begun: j.age()}
	j.next++
	j.add(a, Reserved)
	return a, true, nil
}

// add lists an action. The caller holds mu.
func (j *Journal) add(a *Action, state State) {
	j.byID[a.in.ID] = a
	j.actions = append(j.actions, a)
	a.state = state
	j.counts[state]++
}

// Lookup returns the action of an id, or ErrForgotten, or nil where there never
// was one.
func (j *Journal) Lookup(id string) (*Action, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.byID[id]; a != nil {
		return a, nil
	}
	if _, ok := j.forgotten[hashID(id)]; ok {
		return nil, ErrForgotten
	}
	return nil, nil
}

// List returns at most limit actions with smaller numbers than before (0: all), the
// newest first, that a function wants.
func (j *Journal) List(before uint64, limit int, want func(Info) bool) []Info {
	j.mu.Lock()
	defer j.mu.Unlock()
	end := len(j.actions)
	if before > 0 {
		end, _ = slices.BinarySearchFunc(j.actions, before, func(a *Action, n uint64) int { return cmp.Compare(a.n, n) })
	}
	var list []Info
	for i := end - 1; i >= 0 && len(list) < limit; i-- {
		if info := j.actions[i].info(); want(info) {
			list = append(list, info)
		}
	}
	return list
}

// segmentSize is when a file of the log is full, and ownSize one with the output of a
// single action.
const (
	segmentSize = 4 << 20
	ownSize     = 1 << 20
)

// write appends records to a log, on behalf of an action. The caller holds mu.
func (j *Journal) write(l *log, a *Action, p []byte) (*segment, int64, error) {
	begun := time.Now()
	err := fs.ErrClosed
	if !j.closed {
		err = j.roll(l, len(p))
	}
	var at int64
	if err == nil {
		at = l.current.size
		due := j.age()-j.marked >= min(markInterval, age(j.cfg.MaxAge/100))
		if l == j.log && l.dir.root != nil && (due || at <= fileHeader) {
			at += recordHeader
			p = append(j.mark(), p...)
		}
		err = l.current.append(p)
	}
	j.problem = err
	if err != nil {
		a.lost = true
		return nil, 0, err
	}
	j.bytes += int64(len(p))
	a.hold(l.current)
	j.writes++
	j.writing += time.Since(begun)
	return l.current, at, nil
}

// roll begins a new file where the current one is full, or there is none. The caller
// holds mu.
func (j *Journal) roll(l *log, more int) error {
	old := l.current
	if old != nil && (old.size+int64(more) <= segmentSize || old.size <= fileHeader) {
		return nil
	}
	if old != nil && j.cfg.Sync && l.dir.root != nil {
		if err := old.sync(old.file, old.size); err != nil {
			return err
		}
	}
	s, err := l.dir.create(fmt.Sprintf("log-%016x", l.number+1))
	if err != nil {
		return err
	}
	l.number++
	s.inText = l == j.text
	j.bytes += s.size
	if j.cfg.Sync && l.dir.root != nil {
		if err := syncDir(l.dir.root); err != nil {
			j.drop(l.dir, s)
			return err
		}
	}
	l.current = s
	if old != nil {
		l.dir.seal(old)
		if old.refs == 0 {
			j.drop(l.dir, old)
		}
	}
	return nil
}

func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// drop removes a file. The caller holds mu.
func (j *Journal) drop(d dir, s *segment) {
	j.bytes -= s.size
	d.remove(s)
}

// dirOf is where a file of the log lies. The caller holds mu.
func (j *Journal) dirOf(s *segment) dir {
	if s.inText {
		return j.text.dir
	}
	return j.log.dir
}
