package edit

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/store"
	"github.com/actiond/actiond/internal/hostpath"
)

const (
	// historyDepth is how many edits of one path can be undone.
	historyDepth = 10
	// diskBudget, or half of a smaller file system, and by default memoryBudget bound what all snapshots together take; the oldest go first.
	diskBudget   = 256 << 20
	memoryBudget = 64 << 20
	// entryOverhead is added to the bytes of each entry: the block that even the smallest file takes. It bounds the
	// number of entries too.
	entryOverhead = 4096

	entryMagic = "actiond-undo-1"
)

var (
	errHistoryClosed = errors.New("edit history is closed")
	errDamaged       = errors.New("damaged history entry")
)

// hash is a SHA-256 in hexadecimal.
type hash string

func hashOf(data []byte) hash {
	sum := sha256.Sum256(data)
	return hash(hex.EncodeToString(sum[:]))
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

// entry has the contents that undoing one edit needs. A hash of "" says that there was no file.
type entry struct {
	before hash
	after  hash
	mode   fs.FileMode // before
	dirs   int         // directories that the edit made above the file
	data   []byte      // before
}

// history keeps entries by path: on disk, one file each in a directory of its own, or in memory. The names of the files
// consist of hashes and numbers, by which entries are found and dropped; so opening is one listing, and files with other
// names are ignored. Snapshots are not flushed to the disk: after a power failure the last ones may be damaged, which undo
// notices.
//
// Its methods may be called concurrently for different paths.
type history struct {
	root *os.Root // nil in memory

	mu     sync.Mutex
	paths  map[string][]*saved // oldest first
	size   int64
	budget int64
	serial uint64
	closed bool

	removing sync.WaitGroup // of files of dropped entries; it gets no more once closed is set
}

// saved is an entry as the history finds it again.
type saved struct {
	serial uint64
	size   int64
	inMem  *entry
}

// openHistory opens a history that is to be scanned; one in memory has at most so many bytes.
func openHistory(dir string, inMemory int64) (*history, error) {
	h := &history{paths: make(map[string][]*saved), budget: inMemory}
	if dir == "" {
		return h, nil
	}
	root, err := hostpath.OpenPrivate(dir)
	if err != nil {
		return nil, err
	}
	h.root, h.budget = root, diskBudget
	if _, size := h.space(); size > 0 { // the other half is for uploads
		h.budget = min(h.budget, size/2)
	}
	return h, nil
}

// scan finds the entries of an earlier editor, and removes its unfinished ones.
func (h *history) scan() error {
	if h.root == nil {
		return nil
	}
	dir, err := h.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for err == nil {
		var listing []fs.DirEntry
		listing, err = dir.ReadDir(portion)
		for _, item := range listing {
			h.found(item)
		}
	}
	if err != io.EOF { //nolint:errorlint // ReadDir returns it bare
		return err
	}
	for _, list := range h.paths {
		slices.SortFunc(list, func(a, b *saved) int { return cmp.Compare(a.serial, b.serial) })
	}
	return nil
}

// forget drops all entries of a path, which cannot be reached over a change that was not recorded.
func (h *history) forget(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropAll(historyKey(path))
}

// dropAll is forget by key. h.mu is held.
func (h *history) dropAll(key string) {
	for len(h.paths[key]) > 0 {
		h.drop(key, h.paths[key][0])()
	}
}

// found takes an entry that an earlier editor left, or removes what it left
// unfinished.
func (h *history) found(item fs.DirEntry) {
	name := item.Name()
	if strings.HasSuffix(name, ".tmp") && item.Type().IsRegular() {
		_ = h.root.Remove(name) // written by an editor that died; harmless if it stays
		return
	}
	key, s, ok := parseEntryName(name)
	if !ok || !item.Type().IsRegular() {
		return
	}
	h.paths[key] = append(h.paths[key], s)
	h.size += s.size
	h.serial = max(h.serial, s.serial)
}

func historyKey(path string) string { return string(hashOf([]byte(path))) }

func entryName(key string, s *saved) string {
	return fmt.Sprintf("%s.%016x.%x", key, s.serial, s.size)
}

func parseEntryName(name string) (key string, s *saved, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || len(parts[0]) != 2*sha256.Size {
		return "", nil, false
	}
	serial, err1 := strconv.ParseUint(parts[1], 16, 62)
	size, err2 := strconv.ParseInt(parts[2], 16, 40)
	s = &saved{serial: serial, size: size}
	return parts[0], s, err1 == nil && err2 == nil && name == entryName(parts[0], s)
}

// push records an edit of a path and keeps the entry. Where it cannot, the path loses its history, since older entries could not be reached
// over the gap anyway.
func (h *history) push(path string, en *entry) error {
	key := historyKey(path)
	if en.data != nil {
		en.before = hashOf(en.data)
	}
	s := &saved{size: int64(len(en.data)) + entryOverhead}
	h.mu.Lock()
	h.serial++
	s.serial = h.serial
	closed, budget := h.closed, h.budget
	h.mu.Unlock()
	if closed {
		return errHistoryClosed
	}
	err := func() error {
		if s.size > min(budget, store.MaxContent+entryOverhead) {
			return fmt.Errorf("a snapshot of %d bytes is larger than the whole history may be", s.size)
		}
		if h.root == nil {
			s.inMem = en
			return nil
		}
		err := h.write(entryName(key, s), en)
		for noSpace(err) && h.giveWay(s.size) {
			err = h.write(entryName(key, s), en)
		}
		return err
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed { // meanwhile: the next editor finds the entry
		return errHistoryClosed
	}
	if err != nil {
		h.dropAll(key)
		return err
	}
	h.paths[key] = append(h.paths[key], s)
	h.size += s.size
	var removals []func()
	if len(h.paths[key]) > historyDepth {
		removals = append(removals, h.drop(key, h.paths[key][0]))
	}
	for h.size > h.budget {
		removals = append(removals, h.dropOldest())
	}
	if len(removals) > 0 {
		h.removing.Go(func() { // one by one: a large entry may take the place of thousands, and each removal needs a thread
			for _, remove := range removals {
				remove()
			}
		})
	}
	return nil
}

// giveWay drops the oldest entry on a full file system, unless all entries together
// would not free the needed bytes.
func (h *history) giveWay(need int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removing.Wait() // which frees space
	free, _ := h.space()
	if len(h.paths) == 0 || h.size+free < need {
		return false
	}
	h.dropOldest()()
	return true
}

// space returns the free bytes and the size of the history's file system, 0 where the
// system does not say.
func (h *history) space() (free, size int64) {
	dir, err := h.root.Open(".")
	if err != nil {
		return 0, 0
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return 0, 0
	}
	unit := int64(st.Bsize)                                 //nolint:unconvert // its type depends on the platform
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit //nolint:gosec // no file system has 2^63 bytes
}

// top returns the last entry of a path and the argument for pop to drop it; nil if there are no entries. An entry that cannot be
// read is dropped and fails with errDamaged.
func (h *history) top(path string) (*entry, *saved, error) {
	key := historyKey(path)
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
	s := list[len(list)-1]
	if s.inMem != nil {
		return s.inMem, s, nil
	}
	en, err := h.read(entryName(key, s), s.size)
	if err != nil {
		h.pop(path, s)
		return nil, nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return en, s, nil
}

// pop drops an entry that was undone.
func (h *history) pop(path string, s *saved) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(historyKey(path), s)()
}

func (h *history) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	h.paths = nil
	h.removing.Wait() // nothing is dropped from now on
	if h.root == nil {
		return nil
	}
	return h.root.Close()
}

// drop forgets an entry and returns a function that removes its files. That may take as long as an edit: the system frees
// the pages of a kept file. h.mu is held.
func (h *history) drop(key string, s *saved) (remove func()) {
	at := slices.Index(h.paths[key], s)
	if at < 0 {
		return func() {}
	}
	h.paths[key] = slices.Delete(slices.Clone(h.paths[key]), at, at+1)
	h.size -= s.size
	if len(h.paths[key]) == 0 {
		delete(h.paths, key)
	}
	return func() {
		if h.root == nil {
			return
		}
		_ = h.root.Remove(entryName(key, s)) // one that stays is refused later by its hashes, or ages out
	}
}

// dropOldest is drop of the oldest entry of all. h.mu is held.
func (h *history) dropOldest() (remove func()) {
	key := ""
	for k, list := range h.paths {
		if key == "" || list[0].serial < h.paths[key][0].serial {
			key = k
		}
	}
	return h.drop(key, h.paths[key][0])
}

// write puts an entry into a file.
func (h *history) write(name string, en *entry) (err error) {
	temp := rand.Text() + ".tmp"
	f, err := h.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.root.Remove(temp))
		}
	}()
	_, err = f.WriteString(en.firstLine())
	if err == nil {
		_, err = f.Write(en.data)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return h.root.Rename(temp, name)
}

// firstLine is all of an entry but its data, and a hash of that.
func (en *entry) firstLine() string {
	orNone := func(h hash) hash {
		if h == "" {
			return "-"
		}
		return h
	}
	facts := fmt.Sprintf("%s %s %s %o %d", entryMagic, orNone(en.before), orNone(en.after), uint32(en.mode), en.dirs)
	return facts + " " + string(hashOf([]byte(facts))) + "\n"
}

func (h *history) read(name string, size int64) (*entry, error) {
	f, err := h.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > size {
		return nil, errors.New("it is not a regular file of the size that was written")
	}
	raw := make([]byte, info.Size())
	n, err := f.ReadAt(raw, 0)
	if n < len(raw) {
		return nil, err
	}
	return parseEntry(raw)
}

// parseEntry reads back what write wrote, and nothing else.
func parseEntry(raw []byte) (*entry, error) {
	line, data, found := bytes.Cut(raw, []byte("\n"))
	fields := strings.Split(string(line), " ")
	if !found || len(fields) != 6 {
		return nil, errors.New("its first line is incomplete")
	}
	mode, err1 := strconv.ParseUint(fields[3], 8, 32)
	dirs, err2 := strconv.Atoi(fields[4])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	orEmpty := func(s string) hash {
		if s == "-" {
			return ""
		}
		return hash(s)
	}
	en := &entry{before: orEmpty(fields[1]), after: orEmpty(fields[2]), mode: fs.FileMode(mode), dirs: dirs, data: data}
	if string(line)+"\n" != en.firstLine() {
		return nil, errors.New("its facts do not fit their hash")
	}
	if en.before == "" {
		en.data = nil
	}
	if en.before == "" && len(data) > 0 || en.before != "" && hashOf(data) != en.before {
		return nil, errors.New("its data do not fit their hash")
	}
	return en, nil
}
