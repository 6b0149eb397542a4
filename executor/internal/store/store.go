// Package store keeps contents by their SHA-256, each once, in files that only this process's user can read.
//
// Contents lie one behind the other in segments, which only grow. After the death of the process at most the last
// record of the last segment is torn; [Open] cuts it. Nothing is flushed to the disk: what a power cut damages is
// noticed when it is read, since every content is checked against its name, and is then as if it had never been kept.
//
// A store has a bound and keeps space free for others. What it has no room for it refuses with [ErrFull], and stays as
// it was; [Store.Reclaim] makes room.
package store

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/hostpath"
)

var (
	// ErrFull says that a content is not kept, because the store has no room, or its file system none.
	ErrFull = errors.New("the store of contents is full")
	// ErrTooLarge says that a content is not kept because it is larger than [MaxContent], or than the whole store.
	ErrTooLarge = errors.New("the content is too large for the store")
	// ErrNotKept says that the store does not have a content. It may be kept again.
	ErrNotKept = errors.New("the content is not kept")
	// ErrNewer says that the store was written by a newer version of the program.
	ErrNewer = errors.New("the store of contents was written by a newer version of the server")

	errClosed = errors.New("the store of contents is closed")
)

const (
	// MaxContent bounds a content, in bytes.
	MaxContent = 32 << 20
	// maxSegment bounds a segment that more than one content lies in. Small stores have smaller ones.
	maxSegment = 64 << 20
	minSegment = 64 << 10
	// defaultBound and defaultPart, a part of the free space, bound a store without a bound.
	defaultBound = 2 << 30
	defaultPart  = 10
	// maxFree bounds the space that is left to others on the file system, an eighth of it otherwise.
	maxFree = 256 << 20
	// checkEvery is how many bytes are written between two looks at the space that is left.
	checkEvery = 256 << 10
	// quickShare is the part of a store, one of so many, that is left to PutQuick.
	quickShare = 8
	// overhead is about how many bytes of memory the index takes for a content, which count against the bound too.
	overhead = 128
	prefix   = "seg-"
	lockName = "lock"
)

// Sum is the SHA-256 of a content.
type Sum = [sha256.Size]byte

// Config says where a [Store] lies.
type Config struct {
	// Dir is the directory, for this process's user alone; see [hostpath.OpenPrivate]. "" keeps contents in memory.
	Dir string
	// MaxBytes bounds all segments together; 0 means a tenth of the free space and their own, at most 2 GiB. On tmpfs,
	// which is memory, the store takes a quarter of the file system at most.
	MaxBytes int64
	// MaxContents bounds the contents, and by that the memory of the index; 0 means no bound.
	MaxContents int
}

// Store keeps contents. Its methods may be called concurrently. It owns no goroutine.
type Store struct {
	root *os.Root // nil in memory
	lock *os.File
	zstd codec

	mu       sync.RWMutex
	segments []*segment // in the order of their numbers; the last one grows
	index    map[Sum]place
	size     int64 // of all segments
	bound    int64
	most     int // contents
	segSize  int64
	unseen   int64 // bytes written since the space was looked at
	closed   bool

	evictions atomic.Uint32
}

// place is where a record begins.
type place struct {
	seg *segment
	at  int64
}

// Open opens a store, and makes its directory where it does not exist. It fails with [filelock.ErrLocked] while another
// process has it, and with [ErrNewer].
func Open(cfg Config) (*Store, error) {
	s := &Store{index: map[Sum]place{}, bound: cfg.MaxBytes, most: cfg.MaxContents, unseen: checkEvery}
	if cfg.Dir == "" {
		s.bound = cmp.Or(s.bound, defaultBound)
		return s, nil
	}
	var err error
	if s.root, err = hostpath.OpenPrivate(cfg.Dir); err != nil {
		return nil, fmt.Errorf("opening the store of contents %q: %w", cfg.Dir, err)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store of contents %q: %w", cfg.Dir, err), s.Close())
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.lock, err = s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	if err := filelock.Outlast(func() error { return filelock.Flock(s.lock, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return err
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(s.lock.Fd()), &system); err != nil {
		return err
	}
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1) // of which this process made all
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	total, free := int64(system.Blocks)*system.Bsize, int64(system.Bavail)*system.Bsize //nolint:gosec // the kernel's sizes have 63 bits
	var numbers []uint64
	for _, name := range names {
		if n, err := strconv.ParseUint(strings.TrimPrefix(name, prefix), 10, 62); err == nil && name == segmentName(n) {
			numbers = append(numbers, n)
		} else if strings.HasPrefix(name, "clone-") || strings.HasPrefix(name, "new-") {
			_ = s.root.RemoveAll(name) // large files that an earlier version kept
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if err := s.load(n, i == len(numbers)-1); err != nil {
			return err
		}
	}
	s.bound = cmp.Or(s.bound, min((free+s.size)/defaultPart, defaultBound))
	if system.Type == unix.TMPFS_MAGIC {
		s.bound = min(s.bound, total/4)
	}
	s.segSize = min(max(s.bound/16, minSegment), maxSegment)
	return nil
}

// load reads the headers of a segment, and cuts the torn end behind its last good record.
func (s *Store) load(n uint64, last bool) error {
	f, err := s.root.OpenFile(segmentName(n), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	g := &segment{n: n, file: f}
	g.size, err = scan(f, info.Size(), last, func(h header, at int64) { s.index[h.sum] = place{g, at} })
	switch {
	case errors.Is(err, errDamaged): // killed before its first record, or damaged by a power cut
		return errors.Join(f.Close(), s.root.Remove(segmentName(n)))
	case err != nil:
		return errors.Join(err, f.Close())
	case g.size < info.Size():
		if err := f.Truncate(g.size); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	s.segments = append(s.segments, g)
	s.size += g.size
	return nil
}

// Close closes the store. Its contents remain for the next one.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.root == nil {
		s.index, s.size = nil, 0
		return nil
	}
	var err error
	for _, g := range s.segments {
		err = errors.Join(err, g.file.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return errors.Join(err, s.root.Close())
}

// Has reports whether a content is kept.
func (s *Store) Has(sum Sum) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.index[sum]
	return ok && !s.closed
}

// Evictions is how often contents were lost: while it does not change, everything that
// was kept is there.
func (s *Store) Evictions() uint32 { return s.evictions.Load() }

// Stats are numbers of a store.
type Stats struct {
	Contents int
	// Bytes is the size of all segments, Bound the most that they may take.
	Bytes, Bound int64
}

// Stats returns the present numbers.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Stats{len(s.index), s.size, s.bound}
}

// Put keeps a content, and returns its name. It fails with [ErrFull] or [ErrTooLarge] where the content is not kept,
// and the store goes on. The name is right also if it fails.
func (s *Store) Put(data []byte) (Sum, error) {
	sum := sha256.Sum256(data)
	return sum, s.put(sum, data, MaxContent, s.bound/quickShare)
}

// PutQuick is Put of a content whose name is known, for a caller that waits: a large content is not compressed, and a
// part of the store is free for it where Put has filled the rest.
func (s *Store) PutQuick(sum Sum, data []byte) error { return s.put(sum, data, maxQuick, 0) }

// put compresses contents up to a size, and leaves so many bytes free.
func (s *Store) put(sum Sum, data []byte, compress int, free int64) error {
	if len(data) > MaxContent {
		return ErrTooLarge
	}
	if s.Has(sum) {
		return nil
	}
	head, payload := s.zstd.record(sum, data, compress) // without the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.index[sum]; ok {
		return nil
	}
	most := s.bound - s.segSize/2 - free // the rest is for Reclaim
	if int64(len(head)+len(payload))+fileHeader > most {
		return fmt.Errorf("%w: it has %d bytes, of %d for all", ErrTooLarge, len(data), s.bound)
	}
	if s.most > 0 && len(s.index) >= s.most {
		return fmt.Errorf("%w: it has %d contents", ErrFull, s.most)
	}
	return s.append(sum, head, payload, most-overhead*int64(len(s.index)))
}

// append writes a record. It leaves the store as it was if it fails. s.mu is held.
func (s *Store) append(sum Sum, head, payload []byte, bound int64) error {
	if s.closed {
		return errClosed
	}
	size := int64(len(head) + len(payload))
	if s.size+size+fileHeader > bound {
		return fmt.Errorf("%w: it has %d of %d bytes", ErrFull, s.size, s.bound)
	}
	if s.root == nil {
		s.inMemory(sum, slices.Concat(head, payload))
		return nil
	}
	if s.unseen += size; s.unseen >= checkEvery {
		if err := s.checkSpace(size); err != nil {
			return err
		}
		s.unseen = 0
	}
	g, err := s.growing(size)
	if err != nil {
		return full(err)
	}
	if _, err = g.file.WriteAt(head, g.size); err == nil {
		_, err = g.file.WriteAt(payload, g.size+int64(len(head)))
	}
	if err != nil {
		_ = g.file.Truncate(g.size) // otherwise the next record overwrites it
		return full(err)
	}
	s.index[sum] = place{g, g.size}
	g.size += size
	s.size += size
	return nil
}

// checkSpace refuses to take the last space of the file system.
func (s *Store) checkSpace(need int64) error {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(s.lock.Fd()), &system); err != nil {
		return err
	}
	total, free := int64(system.Blocks)*system.Bsize, int64(system.Bavail)*system.Bsize //nolint:gosec // the kernel's sizes have 63 bits
	if total > 0 && free-need < min(total/8, maxFree) {
		return fmt.Errorf("%w: its file system has %d bytes left", ErrFull, free)
	}
	return nil
}

// full makes ErrFull of the errors of a file system without room.
func full(err error) error {
	for _, none := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		if errors.Is(err, none) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return fmt.Errorf("keeping a content: %w", err)
}

// growing returns the segment for a record of need bytes.
func (s *Store) growing(need int64) (*segment, error) {
	n := uint64(1)
	if len(s.segments) > 0 {
		last := s.segments[len(s.segments)-1]
		if last.size+need <= s.segSize {
			return last, nil
		}
		n = last.n + 1
	}
	f, err := s.root.OpenFile(segmentName(n), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(appendFileHeader(nil), 0); err != nil {
		return nil, errors.Join(err, f.Close(), s.root.Remove(segmentName(n)))
	}
	g := &segment{n: n, file: f, size: fileHeader}
	s.segments = append(s.segments, g)
	s.size += g.size
	return g, nil
}

// Get returns a content. It fails with [ErrNotKept] if the store does not have it, or has it damaged.
func (s *Store) Get(sum Sum) ([]byte, error) {
	s.mu.RLock()
	p, ok := s.index[sum]
	var rec []byte
	err := errClosed
	if !s.closed {
		if err = ErrNotKept; ok {
			rec, err = p.read()
		}
	}
	s.mu.RUnlock()
	if err == nil {
		var data []byte
		if data, err = s.zstd.content(sum, rec); err == nil {
			return data, nil
		}
	}
	if errors.Is(err, errDamaged) {
		s.mu.Lock()
		if s.index[sum] == p { // so that it may be kept again
			delete(s.index, sum)
			s.evictions.Add(1)
		}
		s.mu.Unlock()
		err = fmt.Errorf("%w: it is %w", ErrNotKept, errDamaged)
	}
	return nil, fmt.Errorf("content %x: %w", sum[:8], err)
}
