package changes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/identity"
)

const (
	defaultMaxNames = 500_000
	defaultMaxFile  = 10 << 20
	// defaultMaxWatches leaves watches to others: the limit is that of a user in all containers of a host.
	defaultMaxWatches = 16_384
	// maxDepth bounds directories in each other. Deeper ones count as beyond the limit of names.
	maxDepth = 1 << 14
	// maxListings bounds how often a step lists a directory: again where it changes meanwhile, or has other names of a
	// file that changed. maxTries bounds how often it reads a file that changes meanwhile.
	maxListings = 8
	maxTries    = 3
	// maxReread bounds the bytes that a step reads to find out what attributes do not tell, and maxEager those that
	// it reads so that later steps know.
	maxReread = 256 << 20
	maxEager  = 4 << 20
	// leastRead is what a small file counts for: to open it takes as long as to read this.
	leastRead = 4 << 10
	// listedNames is how many names are listed at each step where watches do not tell everything.
	listedNames = 20_000
)

// Config names the directory that a [Tracker] follows, and its limits.
type Config struct {
	// Root is the absolute path of the directory.
	Root string
	// User reads it; nil means the user of this process.
	User *identity.User
	// MaxNames bounds the names below Root; 0 means 500,000. A symbolic link with a long target counts for several. What is beyond is
	// not followed.
	MaxNames int
	// MaxFile bounds the bytes of a file whose content is compared; 0 means 10 MiB. Of larger ones the attributes are,
	// and their contents are not kept.
	MaxFile int64
	// MaxWatches bounds the directories that are watched; 0 means 16,384, negative numbers mean none. The others are
	// listed in each step if they have few names.
	MaxWatches int
	// Store keeps the contents of files for diffs and for taking back; nil keeps none. It outlives the tracker.
	Store *store.Store
	// StateDir is a directory for this process's user alone, where a restore leaves its plan while it works; "" leaves none.
	StateDir string
	// Refuses reports whether a directory, by its path without links, may not be followed; nil means no. The path of Root may lead to
	// another one later.
	Refuses func(dir string) bool
}

// Tracker follows the tree below a directory. Its methods may be called concurrently; one works at a time. It
// owns no goroutine, and its descriptors stay open until Close.
type Tracker struct {
	cfg Config

	mu     sync.Mutex
	closed bool
	rootFD int
	rootID ident
	reader
	rootPath *byte // with a zero byte at its end
	rootStat unix.Statx_t
	// distrusted says why changes may go unnoticed on this file system; "" where they do not.
	distrusted Why
	// tick is how old a change must be, in nanoseconds, so that the next one has another time; negative if never.
	tick  int64
	root  *dir
	dirs  map[ident]*dir
	cuts  map[*dir]int // those whose entries should be in the tree and are not, and how many names there was room for
	names int
	state *State
	// listed counts the listings of directories.
	listed uint64

	watches watches
	links   groups
	rules   int                 // the bytes of those of all ignore files
	mapped  map[member]struct{} // the files that processes had mapped at the last step

	// Of a step.
	step          uint32
	queue         [][]*dir // to be listed, by depth
	low           int      // no directory of less depth is in the queue
	orphans       []*dir   // whose names are gone; some were moved
	later         []*dir   // left for the next step
	reread, eager int64    // bytes that may be read
	moved         pairs
	forced        map[member]struct{} // files to be read whatever their attributes
	opened        opened
	why           []Why
	unsure        sample

	keeping progress
	// reclaiming is held while the store loses what is unused. It comes after mu.
	reclaiming sync.RWMutex
}

// New watches and lists the tree. It fails if root cannot be opened, with [ErrRefused] if it may not be followed.
func New(cfg Config) (*Tracker, error) {
	cfg.MaxNames = cmp.Or(cfg.MaxNames, defaultMaxNames)
	cfg.MaxFile = cmp.Or(cfg.MaxFile, defaultMaxFile)
	cfg.MaxWatches = cmp.Or(cfg.MaxWatches, defaultMaxWatches)
	t := &Tracker{cfg: cfg, rootFD: -1, reader: reader{buf: make([]byte, 32<<10)}, opened: nothingOpen}
	var err error
	if t.rootPath, err = unix.BytePtrFromString(cfg.Root); err == nil {
		err = t.openWatches()
	}
	if err == nil {
		err = cfg.User.Do(t.openRoot)
	}
	if err == nil {
		_, err = t.Verify()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("following changes of %q: %w", cfg.Root, err), t.Close())
	}
	return t, nil
}

// Close releases the descriptors.
func (t *Tracker) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.watches.close()
	if t.rootFD < 0 {
		return nil
	}
	fd := t.rootFD
	t.rootFD = -1
	return unix.Close(fd)
}

// Step returns the state. It lists what changed since the last one, and reads the events that tell so without waiting.
// pids are the living processes that may have mapped files; those that were given in the last step and have ended since
// need not be given again. It fails only if it could not take on the rights of the user.
func (t *Tracker) Step(pids ...int) (*State, error) { return t.look(false, pids) }

// Verify is Step, but lists everything. It finds also what no event tells of.
func (t *Tracker) Verify(pids ...int) (*State, error) { return t.look(true, pids) }

func (t *Tracker) look(full bool, pids []int) (*State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	err := t.lookLocked(full, pids)
	return t.state, err
}

func (t *Tracker) lookLocked(full bool, pids []int) error {
	t.readEvents()
	if !full && len(pids) == 0 && t.idle() && !t.rootMoved() {
		return nil
	}
	return t.cfg.User.Do(func() error {
		t.update(full, pids)
		return nil
	})
}

// idle reports whether there is nothing to look at.
func (t *Tracker) idle() bool {
	return len(t.queue) == 0 && len(t.mapped) == 0 && len(t.later) == 0 && len(t.watches.cold) == 0 && len(t.links.outside) == 0 &&
		t.distrusted == "" && t.state.why == ""
}

var errClosed = errors.New("the tracker of changes is closed")

// ErrRefused says that a directory may not be followed.
var ErrRefused = errors.New("the directory may not be followed")

// openRoot begins with a new tree.
func (t *Tracker) openRoot() error {
	fd, err := unix.Open(t.cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var system unix.Statfs_t
	var st unix.Statx_t
	if err = unix.Fstatfs(fd, &system); err == nil {
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	}
	if err == nil && t.cfg.Refuses != nil {
		var dir string
		if dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && t.cfg.Refuses(dir) {
			err = ErrRefused
		}
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	if t.rootFD >= 0 {
		_ = unix.Close(t.rootFD) // it was only looked through
	}
	t.rootFD, t.device = fd, device{st.Dev_major, st.Dev_minor}
	t.distrusted, t.tick = trust(int64(system.Type)) //nolint:unconvert // of another size elsewhere
	if t.distrusted == "" && t.tick > 0 {
		if yes, known := storesHaveTimes(fd); known && !yes {
			t.tick = -1
		}
	}
	t.rootID = identOf(&st)
	t.root = &dir{id: t.rootID, changed: true}
	t.dirs, t.cuts, t.names = map[ident]*dir{t.rootID: t.root}, map[*dir]int{}, 0
	t.queue, t.later = nil, nil
	for _, d := range t.watches.dirs {
		t.watches.forget(d)
	}
	clear(t.watches.cold)
	t.links, t.mapped, t.rules = newGroups(), nil, 0
	t.mark(t.root)
	return nil
}

// rootMoved reports whether the path of the root leads to another directory by now.
func (t *Tracker) rootMoved() bool {
	st := &t.rootStat
	at := unix.AT_FDCWD
	// The function of package unix allocates, and this is all that most steps do.
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(t.rootPath)), unix.AT_NO_AUTOMOUNT, //nolint:gosec // the path ends with a zero byte
		unix.STATX_INO|unix.STATX_BTIME, uintptr(unsafe.Pointer(st)), 0) //nolint:gosec // statx(2) fills it
	return errno != 0 || identOf(st) != t.rootID || device{st.Dev_major, st.Dev_minor} != t.device
}

// update lists the dirty directories, or all, and makes the state.
func (t *Tracker) update(full bool, pids []int) {
	t.step++
	t.reread, t.eager = maxReread, maxEager
	t.why, t.unsure = nil, sample{}
	if t.rootMoved() {
		t.because(WhyRoot)
		if err := t.openRoot(); err != nil { // what is left of the old one is listed
			t.mark(t.root)
		}
	}
	later := t.later
	t.later = nil
	for _, d := range later {
		t.push(d)
	}
	t.rereadMapped(pids)
	if full {
		t.markAll()
	} else {
		t.markUnwatched()
		t.checkOutside()
	}
	for len(t.queue) > 0 || len(t.orphans) > 0 {
		t.listQueue()
		t.dropOrphans()
		t.listNames()
		t.seekNames()
		t.markCrowded()
		t.readEvents()
	}
	t.rereadMoved()
	t.forced = nil
	t.opened.close()
	t.countOutside()
	for d := range t.cuts {
		if d.cut == crowded {
			t.because(WhyNamesLimit)
		} else {
			t.doubt(d, "")
		}
	}
	unwatched := 0
	if !full && t.links.unwatched > 0 {
		unwatched = t.links.unwatched
		t.because(WhyUnsure)
	}
	t.publish(unwatched)
}

// markCrowded marks the directories that may have room by now.
func (t *Tracker) markCrowded() {
	for d, room := range t.cuts {
		if d.cut == crowded && t.room(d) > room+room/4 {
			t.mark(d)
		}
	}
}

// room is how many names a directory may have.
func (t *Tracker) room(d *dir) int { return t.cfg.MaxNames - t.names + charge(d.kids) }

// publish makes the state; the last one remains if nothing changed.
func (t *Tracker) publish(unwatched int) {
	slices.Sort(t.unsure.paths)
	s := &State{root: t.root.snapshot(), unsure: slices.Compact(t.unsure.paths), names: t.names, unwatched: unwatched}
	if len(t.why) > 0 {
		s.why = slices.MinFunc(t.why, func(a, b Why) int { return cmp.Compare(slices.Index(whys, a), slices.Index(whys, b)) })
	}
	if last := t.state; last == nil || last.root != s.root || last.why != s.why || last.unwatched != s.unwatched || !slices.Equal(last.unsure, s.unsure) {
		t.state = s
	}
}

// because says that the state may be wrong.
func (t *Tracker) because(why Why) { t.why = append(t.why, why) }

// doubt says that of an entry of d, or of d itself for "".
func (t *Tracker) doubt(d *dir, name string) {
	t.because(WhyUnsure)
	t.unsure.add(d, name)
}

func join(dir, name string) string {
	switch {
	case name == "":
		return dir
	case dir == ".":
		return name
	}
	return dir + "/" + name
}

// mark makes a directory dirty.
func (t *Tracker) mark(d *dir) {
	if !d.dirty {
		d.dirty = true
		t.push(d)
	}
}

func (t *Tracker) push(d *dir) {
	for len(t.queue) <= d.depth {
		t.queue = append(t.queue, nil)
	}
	t.queue[d.depth] = append(t.queue[d.depth], d)
	t.low = min(t.low, d.depth)
}

// listQueue lists dirty directories until there are none. The upper ones come first: what they show to be gone
// need not be listed, and what was moved is found by its new path.
func (t *Tracker) listQueue() {
	for t.low = 0; t.low < len(t.queue); {
		level := t.queue[t.low]
		if len(level) == 0 {
			t.low++
			continue
		}
		d := level[len(level)-1]
		level[len(level)-1] = nil
		t.queue[t.low] = level[:len(level)-1]
		if !d.dirty || !t.attached(d) {
			continue // it is clean, or put into the queue again if it was moved
		}
		if d.step != t.step {
			d.step, d.times = t.step, 0
		}
		if d.times++; d.times > maxListings {
			t.later = append(t.later, d)
			t.doubt(d, "")
			continue
		}
		t.list(d)
	}
	t.queue = nil
}

func (t *Tracker) attached(d *dir) bool {
	for d.up != nil {
		d = d.up
	}
	return d == t.root
}

// place gives a directory that was found below d its depth, and puts what is dirty below it into the queue.
func (t *Tracker) place(s *dir, depth int) {
	s.depth = depth
	if s.dirty {
		t.push(s)
	}
	for _, sub := range s.subs {
		t.place(sub, depth+1)
	}
}

// orphan takes a directory out of the tree until another directory is found to have it.
func (t *Tracker) orphan(s *dir) {
	s.leave()
	t.orphans = append(t.orphans, s)
}

// dropOrphans forgets the directories that no other one was found to have. Their files may have other names.
func (t *Tracker) dropOrphans() {
	orphans := t.orphans
	t.orphans = nil
	for _, d := range orphans {
		if d.up == nil {
			t.drop(d)
		}
	}
}

// drop forgets a directory that is gone, and all below it.
func (t *Tracker) drop(d *dir) {
	for _, s := range d.subs {
		t.drop(s)
	}
	t.empty(d)
	delete(t.cuts, d)
	t.watches.forget(d)
	if t.dirs[d.id] == d {
		delete(t.dirs, d.id)
	}
	d.dirty = false
}

// empty forgets the entries of a directory other than directories.
func (t *Tracker) empty(d *dir) {
	t.regroup(d, d.kids, nil)
	t.countRules(d.kids, nil)
	t.names -= charge(d.kids)
	d.kids = nil
}
