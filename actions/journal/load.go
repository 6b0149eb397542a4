package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// loader reads a journal when it is opened.
type loader struct {
	*Journal

	byN     map[uint64]*Action
	last    *Action // of the last record
	damaged bool    // records may be missing
}

// load reads the files of the directory. The error is ErrNewer, or that of a directory
// that cannot be read; damaged files are read as far as they go.
func (j *Journal) load() error {
	entries, err := fs.ReadDir(j.log.dir.root.FS(), ".")
	if err != nil {
		return err
	}
	var logs []fs.DirEntry
	var outs []string
	for _, e := range entries { // sorted by name
		switch name := e.Name(); {
		case strings.HasPrefix(name, "log-"):
			logs = append(logs, e)
		case strings.HasPrefix(name, "out-"):
			outs = append(outs, name)
		}
	}
	if err := j.loadForgotten(); err != nil {
		return err
	}
	expected := j.expected(logs)
	j.byID, j.actions = make(map[string]*Action, expected), make([]*Action, 0, expected)
	l := &loader{Journal: j, byN: make(map[uint64]*Action, expected)}
	var all []*segment
	for i, e := range logs {
		s, err := l.loadLog(e.Name(), i == len(logs)-1)
		if err != nil {
			return err
		}
		if s != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(j.changes, func(a, b *change) int { return cmp.Compare(a.seq, b.seq) })
	slices.SortFunc(j.actions, func(a, b *Action) int { return int(int64(a.n) - int64(b.n)) }) //nolint:gosec // they count from 1
	for _, name := range outs {
		if err := l.loadOutput(name); err != nil {
			return err
		}
	}
	for _, a := range j.actions {
		if !a.gone {
			l.afterCrash(a)
		}
	}
	j.actions = slices.DeleteFunc(j.actions, func(a *Action) bool { return a.gone })
	for _, s := range all {
		if s.refs == 0 && s != j.log.current {
			j.drop(j.log.dir, s)
		}
	}
	j.marked = j.loaded
	j.forgetSome(nil)
	return nil
}

// expected returns about how many actions the files have, so that the lists of these need not grow.
func (j *Journal) expected(logs []fs.DirEntry) int {
	const smallest = 600 // bytes of an action whose result is short
	var size int64
	for _, e := range logs {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return int(min(size/smallest, int64(j.cfg.MaxActions)))
}

// afterCrash gives an action that did not end its last state. Whether one that is only
// known to be reserved began is not known where records are missing.
func (j *loader) afterCrash(a *Action) {
	switch a.state {
	case Reserved:
		if a.state = Refused; j.damaged {
			a.state = Unknown
		}
	case Running:
		a.state = Unknown
	case Done, Cancelled, Refused, Unknown:
	}
	j.counts[a.state]++
}

// openFile opens a file of the directory. It returns nil where the file does not belong
// to a journal; that is noted.
func (j *Journal) openFile(name string) (*segment, error) {
	file, err := j.log.dir.root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &segment{name: name, file: file}
	info, err := file.Stat()
	if err == nil {
		s.size = info.Size()
		var h [fileHeader]byte
		_, _ = file.ReadAt(h[:], 0) // a short file has a wrong header
		err = checkFileHeader(h[:])
	}
	if err == nil {
		return s, nil
	}
	_ = file.Close() // it was only read
	if errors.Is(err, errDamaged) {
		if s.size > fileHeader { // otherwise the process died when it made the file
			j.note = "the journal is damaged: " + name + " cannot be read"
		}
		return nil, nil
	}
	return nil, err
}

// loadLog reads a file of the log. A torn record at the end of the last file is cut;
// behind damage it goes on with the next record.
func (j *loader) loadLog(name string, last bool) (*segment, error) {
	if _, err := fmt.Sscanf(name, "log-%x", &j.log.number); err != nil {
		return nil, nil //nolint:nilerr // not a file of the journal
	}
	s, err := j.openFile(name)
	if s == nil {
		if err == nil && j.note != "" {
			j.damaged = true
		}
		return nil, err
	}
	sure, whole := true, true // no record was searched for; none is damaged
	each := func(r record, at int64, payload []byte) error {
		if !sure && !j.plausible(r) {
			return nil
		}
		j.next = max(j.next, r.n+1)
		j.apply(s, r, at, payload)
		return nil
	}
	end, err := scan(s.file, fileHeader, s.size, each)
	for err == nil && end < s.size {
		next, found := resume(s.file, end, s.size)
		if next < 0 && last {
			break // torn
		}
		if whole {
			j.note, j.damaged, whole = damageNote(name, end), true, false
		}
		if next < 0 {
			break
		}
		sure = sure && !found
		end, err = scan(s.file, next, s.size, each)
	}
	if err != nil {
		return nil, err
	}
	if whole && last && end < s.size && s.file.Truncate(end) == nil {
		s.size = end
	}
	j.bytes += s.size
	if whole && last && end == s.size {
		j.log.current = s
		return s, nil
	}
	j.log.dir.seal(s)
	return s, nil
}

// plausible reports whether a record counts that was found behind a damaged header, where
// the search may have hit upon output that looks like records: it may add an id that
// is not to run again, or say that an action began, and nothing else.
func (j *loader) plausible(r record) bool {
	return (r.kind == kindReserved || r.kind == kindRunning) && r.n < j.next+1<<20
}

func (j *loader) apply(s *segment, r record, at int64, payload []byte) {
	j.loaded++ // records keep their order
	switch r.kind {
	case kindAge:
		j.loaded = max(j.loaded, age(r.at))
		return
	case kindChange:
		j.applyChange(s, r, at)
		return
	default:
	}
	a := j.last // most actions have all of their records in a row
	if a == nil || a.n != r.n || a.gone {
		a = j.byN[r.n]
		j.last = a
	}
	if a == nil {
		if r.kind == kindReserved || r.kind == kindRunning {
			j.applyIntent(s, r, payload)
		}
		return
	}
	switch r.kind {
	case kindRunning:
		a.state = Running
	case kindOutput:
		if r.length > 0 { // otherwise it is a length alone
			a.inline = append(a.inline, place{segment: s, at: at, seq: r.seq, offset: r.at})
			a.inlined += recordHeader + r.length
		}
		a.out.grow(r)
	case kindEnded:
		if state := State(r.detail & stateMask); state.Ended() && state <= Unknown {
			a.state, a.outcome = state, r.detail>>outcomeShift&outcomeMask
		}
		if r.detail&effectNone != 0 {
			a.effect = EffectNone
		}
		a.end, a.aged, a.result, a.hasResult = r.at, j.loaded, place{segment: s, at: at}, r.length > 0
		a.resultSize = int64(r.length)
		a.out.end, a.out.seq = max(a.out.end, r.inner), max(a.out.seq, r.seq)
	case kindDropped:
		delete(j.byID, a.in.ID)
		delete(j.byN, a.n)
		for _, s := range a.held {
			s.refs--
		}
		j.unlistChange(a.change)
		a.gone = true
		return
	case kindInput:
		a.input = max(a.input, r.at+1)
	case kindDenied:
		a.denied = true
	case kindAfter:
		a.left = uint64(r.inner) //nolint:gosec // never negative
		j.lastState = max(j.lastState, a.left)
	case kindReserved, kindForgotten, kindResult, kindChange, kindAge:
	}
	a.hold(s)
}

func (j *loader) applyIntent(s *segment, r record, payload []byte) {
	in, begin, ok := decodeIntent(payload)
	if !ok || j.byID[in.ID] != nil || j.hasForgotten(in.ID) {
		return
	}
	a := &Action{j: j.Journal, in: in, n: r.n, begin: begin, begun: j.loaded, state: Reserved, recorded: true}
	if r.kind == kindRunning {
		a.state = Running
	}
	j.byID[in.ID], j.byN[a.n] = a, a
	j.actions = append(j.actions, a)
	a.hold(s)
}

func (j *loader) hasForgotten(id string) bool {
	if len(j.forgotten) == 0 {
		return false // without the time that a digest takes
	}
	_, gone := j.forgotten[hashID(id)]
	return gone
}

// grow counts a record of output.
func (e *extent) grow(r record) {
	if e.seq = max(e.seq, r.seq); r.detail&startedFlag != 0 {
		return
	}
	e.end = max(e.end, r.at+int64(r.length))
	if int(r.detail) < len(e.streams) {
		e.streams[r.detail] = max(e.streams[r.detail], r.inner+int64(r.length))
	}
}

// loadOutput reads a file with the output of one action, which is removed where the
// action no longer exists.
func (j *loader) loadOutput(name string) error {
	var n uint64
	var number int
	if _, err := fmt.Sscanf(name, "out-%x-%x", &n, &number); err != nil {
		return nil // not a file of the journal
	}
	j.next = max(j.next, n+1)
	s, err := j.openFile(name)
	if err != nil {
		return err
	}
	a := j.byN[n]
	if a == nil || s == nil {
		if s != nil {
			j.log.dir.seal(s)
		}
		_ = j.log.dir.root.Remove(name) // at the next start, otherwise
		return nil
	}
	defer j.log.dir.seal(s)
	whole := errors.New("enough")
	end, err := scan(s.file, fileHeader, s.size, func(r record, _ int64, _ []byte) error {
		if s.first == 0 {
			s.first, s.offset = r.seq, r.at
		}
		a.out.grow(r)
		if a.state.Ended() { // its last record says the rest
			return whole
		}
		return nil
	})
	if err == nil && end < s.size {
		if err := s.file.Truncate(end); err == nil {
			s.size = end
		}
	}
	if s.first == 0 {
		j.log.dir.remove(s)
		return nil
	}
	s.inText = true
	a.files = number + 1
	a.own = append(a.own, s)
	j.bytes += s.size
	return nil
}

func (j *Journal) loadForgotten() error {
	s, err := j.openFile(forgottenName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s == nil {
		j.note = "the journal is damaged: the ids of forgotten actions cannot be read"
		return nil
	}
	end, err := scan(s.file, fileHeader, s.size, func(r record, _ int64, payload []byte) error {
		j.next = max(j.next, r.n+1)
		if r.kind == kindForgotten && len(payload) == len(idHash{}) {
			j.noteForgotten(idHash(payload))
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.size = end
	j.forgottenFile = s
	return nil
}
