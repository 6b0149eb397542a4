package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/actiond/actiond/executor/internal/store"
)

const (
	// historyDepth is how many edits of one path can be undone, and maxSaved of all paths together.
	historyDepth = 10
	maxSaved     = 8192
	// diskBudget, or half of a smaller store, and by default memoryBudget bound the size of the bytes before all edits
	// together, as if none were compressed or equal; the oldest edits go first.
	diskBudget   = 256 << 20
	memoryBudget = 64 << 20
)

var errHistoryClosed = errors.New("edit history is closed")

// hash is a SHA-256 in hexadecimal.
type hash string

func hashOf(data []byte) hash {
	sum := sha256.Sum256(data)
	return hashFrom(sum)
}

// hashFrom is "" for zeros, and sum its inverse.
func hashFrom(sum store.Sum) hash {
	if sum == (store.Sum{}) {
		return ""
	}
	return hash(hex.EncodeToString(sum[:]))
}

func (h hash) sum() (sum store.Sum) {
	_, _ = hex.Decode(sum[:], []byte(h)) // it is one
	return sum
}

// hashing hashes data while the caller does something else, such as waiting for
// the disk. The caller must call the returned function, which waits for the hash.
func hashing(data []byte) func() hash {
	var sum hash
	var done sync.WaitGroup
	done.Go(func() { sum = hashOf(data) })
	return func() hash {
		done.Wait()
		return sum
	}
}

// entry has the data to undo one edit. Without data, the file did not exist before; with after "", it no longer exists.
type entry struct {
	after hash
	mode  fs.FileMode // before
	dirs  int         // directories that the edit made above the file
	data  []byte      // before

	keeping sync.WaitGroup // of keep
	begun   bool
	before  store.Sum // of data, once that is kept
	err     error     // why it is not
}

// history keeps entries by path. The bytes before an edit lie in a store of contents, by which other parts may keep the
// same bytes; all else lies in a log, or in memory. Its methods may be called concurrently for different paths.
type history struct {
	contents func() (*store.Store, error)
	own      bool // nothing else uses the store
	reclaim  func() error

	mu     sync.Mutex // not held while the store is used, which calls needs
	paths  map[store.Sum][]*record
	all    []*record          // oldest first
	uses   map[store.Sum]int  // of contents, by entries and by calls of keep
	lost   map[store.Sum]bool // paths whose entries all went for lack of room, at most maxSaved
	size   int64              // of all contents, where each counts for every entry
	log    *undoLog
	closed bool

	removing sync.WaitGroup // of an older history
}

// openHistory opens the history that the log in a directory has, unless that or contents is nil.
func openHistory(root *os.Root, c *Config) (*history, error) {
	h := &history{contents: c.Contents, reclaim: c.Reclaim, paths: map[store.Sum][]*record{}, uses: map[store.Sum]int{}, lost: map[store.Sum]bool{}}
	var err error
	if h.contents == nil {
		h.own, h.contents = true, sync.OnceValues(func() (*store.Store, error) { return store.Open(store.Config{MaxBytes: c.MaxMemory}) })
	} else if root != nil {
		h.log, err = openLog(root, h.replay)
	}
	return h, err
}

// replay repeats the step in a record of an earlier process.
func (h *history) replay(r record) {
	switch list := h.paths[r.key]; {
	case r.kind == wasEdited:
		h.insert(&r)
	case r.kind == wasForgotten:
		h.dropAll(r.key)
	case len(list) > 0:
		h.drop(list[len(list)-1])
	}
}

// needs reports whether a content is needed to undo an edit.
func (h *history) needs(sum store.Sum) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uses[sum] > 0
}

// hold counts a use of a content. h.mu is held.
func (h *history) hold(sum store.Sum, n int) {
	if h.uses[sum] += n; h.uses[sum] <= 0 {
		delete(h.uses, sum)
	}
}

// keep puts the bytes of an entry into the store while the caller does something else. The caller must push or discard
// the entry.
func (h *history) keep(en *entry) {
	if en.begun || en.data == nil {
		return
	}
	en.begun = true
	en.keeping.Go(func() { en.err = h.put(en) })
}

// put is keep, at once.
func (h *history) put(en *entry) error {
	en.before = sha256.Sum256(en.data)
	h.mu.Lock()
	h.hold(en.before, 1) // so that it is not reclaimed before the entry is recorded
	h.mu.Unlock()
	s, err := h.contents()
	if err != nil {
		return err
	}
	err = s.PutQuick(en.before, en.data)
	need := int64(len(en.data))
	for drop := int64(0); errors.Is(err, store.ErrFull); drop = max(2*drop, 2*need, 1<<20) {
		if ok, failed := h.makeRoom(s, need, drop); !ok || failed != nil {
			return errors.Join(err, failed)
		}
		err = s.PutQuick(en.before, en.data)
	}
	return err
}

// makeRoom drops the oldest entries that have so many bytes, and lets the store reclaim unused contents. It
// reports whether there may be room for need bytes, and drops nothing where all entries would not give that.
func (h *history) makeRoom(s *store.Store, need, drop int64) (bool, error) {
	h.mu.Lock()
	if drop > 0 && (h.size < need || len(h.all) == 0) {
		h.mu.Unlock()
		return false, nil
	}
	for end := h.size - drop; h.size > end && len(h.all) > 0; {
		h.dropOldest()
	}
	h.mu.Unlock()
	if h.reclaim != nil {
		return true, h.reclaim()
	}
	_, err := s.Reclaim(h.needs)
	return true, err
}

// discard takes keep back.
func (h *history) discard(en *entry) {
	en.keeping.Wait()
	if en.begun {
		h.mu.Lock()
		h.hold(en.before, -1)
		h.mu.Unlock()
	}
	en.begun = false
}

// push records an edit of a path and keeps the entry. Where it cannot, the path loses its history, since older entries
// could not be reached over the gap anyway.
func (h *history) push(path string, en *entry) error {
	h.keep(en)
	en.keeping.Wait()
	defer h.discard(en)
	r := &record{
		kind: wasEdited, mode: en.mode, dirs: en.dirs, size: int64(len(en.data)), key: keyOf(path), before: en.before, after: en.after.sum(),
	}
	budget := h.budget()
	h.mu.Lock()
	defer h.mu.Unlock()
	err := en.err
	switch {
	case h.closed:
		return errHistoryClosed
	case err == nil && r.size > budget:
		err = fmt.Errorf("%w: %d bytes are more than the whole history may have", store.ErrTooLarge, r.size)
	case err == nil:
		err = h.write(r)
	}
	if err != nil {
		h.forgetKey(r.key)
		if errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrTooLarge) {
			h.lose(r.key)
		}
		return err
	}
	h.insert(r)
	for h.size > budget {
		h.dropOldest()
	}
	return nil
}

// budget bounds the bytes of all contents together; 0 where there is no store.
func (h *history) budget() int64 {
	s, err := h.contents()
	switch {
	case err != nil:
		return 0
	case h.own:
		return s.Stats().Bound
	}
	return min(diskBudget, s.Stats().Bound/2)
}

// write writes a record into the log, which is rewritten once most of it is no longer needed. h.mu is held.
func (h *history) write(r *record) error {
	if h.log != nil && h.log.n > 2*len(h.all)+1024 {
		var data []byte
		for _, r := range h.all {
			data = r.append(data)
		}
		if err := h.log.rewrite(data); err != nil {
			return err
		}
	}
	return h.log.add(r)
}

// top returns the last entry of a path and the argument for pop to drop it; nil if there are no entries. Where its
// bytes are not kept, the path loses its history.
func (h *history) top(path string) (*entry, *record, error) {
	key := keyOf(path)
	h.mu.Lock()
	list := h.paths[key]
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return nil, nil, errHistoryClosed
	}
	if len(list) == 0 {
		return nil, nil, nil
	}
	r := list[len(list)-1]
	en := &entry{after: hashFrom(r.after), mode: r.mode, dirs: r.dirs, before: r.before}
	if r.before == (store.Sum{}) {
		return en, r, nil
	}
	s, err := h.contents()
	if err == nil {
		if en.data, err = s.Get(r.before); errors.Is(err, store.ErrNotKept) {
			h.forget(path)
		}
	}
	return en, r, err
}

// pop drops an entry that was undone.
func (h *history) pop(r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(r)
	_ = h.write(&record{kind: wasUndone, key: r.key}) // otherwise it is refused later, by its hashes
}

// forget drops all entries of a path, which cannot be reached over a change that was not recorded.
func (h *history) forget(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetKey(keyOf(path))
}

// forgetKey is forget by key. h.mu is held.
func (h *history) forgetKey(key store.Sum) {
	if len(h.paths[key]) > 0 {
		h.dropAll(key)
		_ = h.write(&record{kind: wasForgotten, key: key}) // otherwise they are refused later, by their hashes
	}
}

func (h *history) close() error {
	h.removing.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.log.close()
}

// insert adds an entry, in place of the oldest one where there are too many. h.mu is held.
func (h *history) insert(r *record) {
	h.all = append(h.all, r)
	h.paths[r.key] = append(h.paths[r.key], r)
	delete(h.lost, r.key)
	h.size += r.size
	if r.before != (store.Sum{}) {
		h.hold(r.before, 1)
	}
	if list := h.paths[r.key]; len(list) > historyDepth {
		h.drop(list[0])
	}
	if len(h.all) > maxSaved {
		h.dropOldest()
	}
}

// drop forgets an entry. h.mu is held.
func (h *history) drop(r *record) {
	list := h.paths[r.key]
	at := slices.Index(list, r)
	if at < 0 {
		return
	}
	if h.paths[r.key] = slices.Delete(slices.Clone(list), at, at+1); len(list) == 1 { // top reads the old list
		delete(h.paths, r.key)
	}
	at = slices.Index(h.all, r)
	h.all = slices.Delete(h.all, at, at+1)
	h.size -= r.size
	if r.before != (store.Sum{}) {
		h.hold(r.before, -1)
	}
}

// dropAll drops all entries of a path. h.mu is held.
func (h *history) dropAll(key store.Sum) {
	for len(h.paths[key]) > 0 {
		h.drop(h.paths[key][0])
	}
}

// dropOldest drops the oldest entry of all. h.mu is held.
func (h *history) dropOldest() {
	r := h.all[0]
	if h.drop(r); len(h.paths[r.key]) == 0 {
		h.lose(r.key)
	}
}

// lose notes that a path has no entries since there was no room. h.mu is held.
func (h *history) lose(key store.Sum) {
	if len(h.lost) >= maxSaved {
		clear(h.lost)
	}
	h.lost[key] = true
}

// hasLost reports whether a path has no entries since there was no room.
func (h *history) hasLost(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[keyOf(path)]
}

// removeOlder removes the history of an earlier version, which had a file for each edit, and returns their number.
func (h *history) removeOlder(root *os.Root) (edits int, err error) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, err
	}
	var names []string
	err = eachNameIn(dir, func(name string) {
		// KEY.SERIAL.SIZE, in hexadecimal, or RANDOM.tmp of one that was being written
		parts := strings.Split(name, ".")
		if edit := len(parts) == 3 && len(parts[0]) == 2*sha256.Size && len(parts[1]) == 16; edit {
			edits++
		} else if len(parts) != 2 || len(parts[0]) != 26 || parts[1] != "tmp" {
			return
		}
		names = append(names, name)
	})
	if len(names) > 0 {
		h.removing.Go(func() { // there may be thousands
			for _, name := range names {
				_ = root.Remove(name) // it is tried at the next start, otherwise
			}
		})
	}
	return edits, errors.Join(err, dir.Close())
}

func keyOf(path string) store.Sum { return sha256.Sum256([]byte(path)) }
