package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
)

// Stream says where output came from.
type Stream uint8

// The streams.
const (
	Terminal Stream = iota
	Stdout
	Stderr
	streams
)

// ChunkSize is the most bytes that a record of output has.
const ChunkSize = 32 << 10

// inlineSize is how much output of an action lies in the log; the rest has files of
// its own.
const inlineSize = 64 << 10

// Output is a stretch of output.
type Output struct {
	// Seq counts the stretches of an action from 1.
	Seq    uint64
	Stream Stream
	// Offset is that of the first byte among all output, and StreamOffset in its stream.
	Offset, StreamOffset int64
	// PID is the process that begins with this stretch, which has no Data; otherwise 0.
	PID  int
	Data []byte
}

// startedFlag marks a record whose payload is the PID of a process, and no output.
const startedFlag = 0x80

// Started records that a process began, as a stretch without data.
func (a *Action) Started(stream Stream, pid int) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if !a.state.Ended() {
		a.append(stream|startedFlag, binary.LittleEndian.AppendUint32(nil, uint32(pid))) //nolint:gosec // PIDs have 22 bits
		a.wake()
	}
}

// Output records output. Output that cannot be recorded is missing for readers, who see it
// in the offsets.
func (a *Action) Output(stream Stream, p []byte) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	for len(p) > 0 && !a.state.Ended() {
		n := min(len(p), ChunkSize)
		a.append(stream, p[:n])
		p = p[n:]
	}
	a.wake()
}

// Skip records that so many bytes of output were lost before they came here.
func (a *Action) Skip(stream Stream, n int64) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	a.out.end += n
	a.out.streams[stream] += n
}

// append records a stretch of output. The caller holds mu.
func (a *Action) append(stream Stream, p []byte) {
	from := stream &^ startedFlag
	r := record{kind: kindOutput, detail: uint8(stream), n: a.n, at: a.out.end, inner: a.out.streams[from], seq: a.out.seq + 1}
	a.out.seq++
	if from == stream {
		a.out.end += int64(len(p))
		a.out.streams[from] += int64(len(p))
	}
	buf := a.j.buf[:0]
	if len(a.own) == 0 && a.files == 0 && a.inlined+recordHeader+len(p) <= inlineSize {
		buf = appendRecord(buf, r, p)
		a.j.buf = buf[:0]
		if s, at, err := a.j.write(a.j.text, a, buf); err == nil {
			a.inlined += len(buf)
			a.inline = append(a.inline, place{segment: s, at: at, seq: r.seq, offset: r.at})
		}
		return
	}
	buf = appendRecord(buf, r, p)
	a.j.buf = buf[:0]
	s, err := a.ownFile(r, len(buf))
	if err == nil {
		err = s.append(buf)
	}
	a.j.problem = err
	if err != nil {
		a.lost = true
		return
	}
	a.j.bytes += int64(len(buf))
}

// ownFile returns the file for the next record of output. In the middle of an output
// that is too long, a file is removed for every one that is made. The caller holds mu.
func (a *Action) ownFile(r record, more int) (*segment, error) {
	d := a.j.text.dir
	if n := len(a.own); n > 0 {
		last := a.own[n-1]
		if last.file != nil && last.size+int64(more) <= ownSize {
			return last, nil
		}
	}
	s, err := d.create(fmt.Sprintf("out-%016x-%08x", a.n, a.files))
	if err != nil {
		return nil, err
	}
	a.files++
	s.first, s.offset, s.inText = r.seq, r.at, true
	a.j.bytes += s.size
	if n := len(a.own); n > 0 {
		d.seal(a.own[n-1])
	}
	a.own = append(a.own, s)
	if most := max(int(a.j.cfg.MaxOutput/ownSize), 2); len(a.own) > most {
		middle := most / 2
		a.j.drop(d, a.own[middle])
		a.own = append(a.own[:middle], a.own[middle+1:]...)
	}
	return s, nil
}

// Cursor reads the output of an action in order. It must be closed and is for one
// goroutine.
type Cursor struct {
	a       *Action
	seq     uint64 // of the next record
	segment *segment
	at      int64 // where that record may lie in the segment
	file    reader
}

// Follow returns a cursor behind the stretch with that number; 0 is the start.
func (a *Action) Follow(after uint64) *Cursor { return &Cursor{a: a, seq: after + 1} }

// From returns a cursor at the stretch that holds the byte at an offset, or at the
// first one behind it that is kept.
func (a *Action) From(offset int64) *Cursor {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	seq := uint64(1)
	if i := sort.Search(len(a.inline), func(i int) bool { return a.inline[i].offset > offset }); i > 0 {
		seq = a.inline[i-1].seq
	}
	if i := sort.Search(len(a.own), func(i int) bool { return a.own[i].offset > offset }); i > 0 {
		seq = a.own[i-1].first
	}
	return &Cursor{a: a, seq: seq}
}

// Close ends the reading.
func (c *Cursor) Close() { c.file.Close() }

// errAgain says that a record turned out not to be there.
var errAgain = errors.New("again")

// Next returns the next stretch, in buf, which has room for ChunkSize. Where there is
// none yet, more is closed once there may be. The error is io.EOF at the end of an
// action that ended, and ErrForgotten.
func (c *Cursor) Next(buf []byte) (out Output, more <-chan struct{}, err error) {
	for {
		size, more, err := c.locate()
		if err != nil || more != nil {
			return Output{}, more, err
		}
		out, err := c.read(size, buf)
		if !errors.Is(err, errAgain) {
			return out, nil, err
		}
	}
}

// locate finds the file that the next record is in, opens it, and returns its size.
func (c *Cursor) locate() (size int64, more <-chan struct{}, err error) {
	a := c.a
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	for {
		at, own := a.find(c.seq)
		s := at.segment
		switch {
		case s == nil && a.gone:
			return 0, nil, ErrForgotten
		case s == nil && a.state.Ended():
			return 0, nil, io.EOF
		case s == nil:
			if a.more == nil {
				a.more = make(chan struct{})
			}
			return 0, a.more, nil
		}
		if s != c.segment {
			c.file.Close()
			c.segment, c.file = nil, reader{}
			if c.file, err = a.j.dirOf(s).open(s); err != nil {
				return 0, nil, err
			}
			c.segment, c.at = s, at.at
		}
		if !own {
			c.at, c.seq = at.at, at.seq
		}
		if c.at < s.size {
			return s.size, nil, nil
		}
		c.seq = a.after(s)
	}
}

// find returns where the record with that number is, or the first one behind it that
// is kept. Of a file with output alone it returns the start. The caller holds mu.
func (a *Action) find(seq uint64) (at place, own bool) {
	if seq > a.out.seq {
		return place{}, false
	}
	if i := sort.Search(len(a.inline), func(i int) bool { return a.inline[i].seq >= seq }); i < len(a.inline) {
		return a.inline[i], false
	}
	if len(a.own) == 0 {
		return place{}, false
	}
	i := sort.Search(len(a.own), func(i int) bool { return a.own[i].first > seq })
	return place{segment: a.own[max(i-1, 0)], at: fileHeader}, true
}

// after returns the number of the first record behind a file with output. The caller
// holds mu.
func (a *Action) after(s *segment) uint64 {
	for i, own := range a.own {
		if own == s && i+1 < len(a.own) {
			return a.own[i+1].first
		}
	}
	return a.out.seq + 1
}

// read reads the next record from the open file. It returns errAgain where that is not
// in the rest of the file, or damaged.
func (c *Cursor) read(size int64, buf []byte) (Output, error) {
	var h [recordHeader]byte
	for c.at+recordHeader <= size {
		if _, err := c.file.ReadAt(h[:], c.at); err != nil {
			return Output{}, c.readError(err)
		}
		r, ok := parseRecord(h[:])
		if !ok || r.n != c.a.n || r.kind != kindOutput || r.length > len(buf) {
			break
		}
		at := c.at + recordHeader
		c.at = at + int64(r.length)
		if r.seq < c.seq {
			continue
		}
		p := buf[:r.length]
		if _, err := c.file.ReadAt(p, at); err != nil {
			return Output{}, c.readError(err)
		}
		c.seq = r.seq + 1
		if crc32.Checksum(p, castagnoli) != r.sum {
			return Output{}, errAgain
		}
		o := Output{Seq: r.seq, Stream: Stream(r.detail &^ startedFlag), Offset: r.at, StreamOffset: r.inner, Data: p}
		if r.detail&startedFlag != 0 && len(p) == 4 {
			o.PID, o.Data = int(binary.LittleEndian.Uint32(p)), nil
		}
		if o.Stream >= streams {
			return Output{}, errAgain // none that this version knows
		}
		return o, nil
	}
	c.at = size
	c.seq++
	return Output{}, errAgain
}

// readError is the error of a file that may have been removed meanwhile, with the action
// or from the middle of its output.
func (c *Cursor) readError(err error) error {
	if ignoreClosed(err) == nil {
		c.segment, c.file = nil, reader{}
		c.a.j.mu.Lock()
		defer c.a.j.mu.Unlock()
		if c.a.gone || c.a.j.closed {
			return ErrForgotten
		}
		return errAgain
	}
	return fmt.Errorf("reading the journal: %w", err)
}
