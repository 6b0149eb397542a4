package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The format of a file: a header of fileHeader bytes (magic, version), then records. A
// record is a header of recordHeader bytes and its payload. The checksum of the header
// covers the one of the payload, so that a reader may skip large payloads.
const (
	magic        = "actiondj"
	version      = 1 // the one that is written
	oldest       = 1 // the oldest that can be read
	fileHeader   = 16
	recordHeader = 48

	// maxPayload bounds the memory that a damaged length can make a reader allocate.
	maxPayload = 1 << 30
	// checkedPayload is the largest payload that is read and checked at the start.
	checkedPayload = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNewer reports files of a newer version of the program.
var ErrNewer = errors.New("the journal was written by a newer version of the server: use that version, or another --state-dir")

type recordKind uint8

const (
	kindReserved  recordKind = iota + 1 // payload: intent
	kindRunning                         // payload: intent, or nothing after kindReserved
	kindOutput                          // payload: bytes
	kindEnded                           // payload: the result
	kindDropped                         // the action is to be as if it never came
	kindForgotten                       // payload: the hash of an id
	kindResult                          // payload: the result of an action whose kindEnded has none
	kindInput                           // the program of the action took its input up to the offset at
	kindChange                          // payload: changes, by the action n or by none
	kindDenied                          // the network policy denied connections of the action
	kindAge                             // the age of the journal; of no action
	kindAfter                           // the state that the action left
)

type record struct {
	kind   recordKind
	detail uint8 // the state, the outcome and the effect of kindEnded, the stream of kindOutput
	n      uint64
	at     int64 // time in Unix nanoseconds, age in nanoseconds, or offset of output
	inner  int64 // kindOutput: offset in its stream; kindEnded: bytes of output in all; kindChange, kindAfter: number of the state
	seq    uint64
	length int
	sum    uint32
}

// The detail of kindEnded. The effect is set if nothing changed.
const (
	stateMask    = 0xf
	outcomeShift = 4
	outcomeMask  = 0x7
	effectNone   = 0x80
)

func appendRecord(dst []byte, r record, payload []byte) []byte {
	var h [recordHeader]byte
	le := binary.LittleEndian
	le.PutUint32(h[4:], crc32.Checksum(payload, castagnoli))
	le.PutUint32(h[8:], uint32(len(payload))) //nolint:gosec // at most maxPayload
	h[12], h[13] = byte(r.kind), r.detail
	le.PutUint64(h[16:], r.n)
	le.PutUint64(h[24:], uint64(r.at))    //nolint:gosec // read back by the same rule
	le.PutUint64(h[32:], uint64(r.inner)) //nolint:gosec // likewise
	le.PutUint64(h[40:], r.seq)
	le.PutUint32(h[0:], crc32.Checksum(h[4:], castagnoli))
	return append(append(dst, h[:]...), payload...)
}

// parseRecord reads a header; false where it is damaged.
func parseRecord(h []byte) (record, bool) {
	le := binary.LittleEndian
	if len(h) < recordHeader || le.Uint32(h) != crc32.Checksum(h[4:recordHeader], castagnoli) {
		return record{}, false
	}
	r := record{
		kind: recordKind(h[12]), detail: h[13], n: le.Uint64(h[16:]),
		at: int64(le.Uint64(h[24:])), inner: int64(le.Uint64(h[32:])), //nolint:gosec // written by the same rule
		seq: le.Uint64(h[40:]), length: int(le.Uint32(h[8:])), sum: le.Uint32(h[4:]),
	}
	return r, r.length <= maxPayload && r.at >= 0 && r.inner >= 0 && h[14] == 0 && h[15] == 0
}

// appendFileHeader appends the header of a file.
func appendFileHeader(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// checkFileHeader returns ErrNewer for a newer version, and errDamaged for a file that is
// not of a journal.
func checkFileHeader(h []byte) error {
	if len(h) < fileHeader || string(h[:len(magic)]) != magic {
		return errDamaged
	}
	switch v := binary.LittleEndian.Uint32(h[len(magic):]); {
	case v > version:
		return fmt.Errorf("version %d, and this server reads %d: %w", v, version, ErrNewer)
	case v < oldest:
		return errDamaged
	}
	return nil
}

// errDamaged reports bytes that are no record.
var errDamaged = errors.New("damaged")

// scan calls each for the records of a file from position at on. The payload is nil
// where it is larger than checkedPayload; it is only valid during the call. It returns
// the end of the last good record; the bytes behind it were torn or damaged.
func scan(file io.ReaderAt, at, size int64, each func(r record, at int64, payload []byte) error) (end int64, err error) {
	buf := make([]byte, recordHeader+checkedPayload)
	have, from := 0, at // buf holds have bytes from there
	fill := func(want int) bool {
		skip := int(at - from)
		if skip < have {
			have = copy(buf, buf[skip:have])
		} else {
			have = 0
		}
		from = at
		if have >= want {
			return true
		}
		n, _ := file.ReadAt(buf[have:min(int64(len(buf)), max(size-from, 0))], from+int64(have)) // an error is a short read
		have += n
		return have >= want
	}
	for at+recordHeader <= size {
		if int(at-from)+recordHeader > have && !fill(recordHeader) {
			return at, nil
		}
		r, ok := parseRecord(buf[at-from : have])
		next := at + recordHeader + int64(r.length)
		if !ok || next > size {
			return at, nil
		}
		var payload []byte
		if r.length <= checkedPayload {
			if want := recordHeader + r.length; int(at-from)+want > have && !fill(want) {
				return at, nil
			}
			start := int(at-from) + recordHeader
			payload = buf[start : start+r.length]
			if crc32.Checksum(payload, castagnoli) != r.sum {
				return at, nil
			}
		}
		if err := each(r, at, payload); err != nil {
			return at, err
		}
		at = next
	}
	return at, nil
}

// resume returns where the records go on behind a damaged one, -1 where no more follow: at
// the end of that record, or at one that was found by its checksum.
func resume(file io.ReaderAt, at, size int64) (next int64, found bool) {
	var h [recordHeader]byte
	if n, _ := file.ReadAt(h[:], at); n < recordHeader {
		return -1, false
	}
	if r, ok := parseRecord(h[:]); ok {
		if next = at + recordHeader + int64(r.length); next > size {
			return -1, false
		}
		return next, false
	}
	buf := make([]byte, 1<<20)
	for at++; at+recordHeader <= size; {
		n, _ := file.ReadAt(buf[:min(int64(len(buf)), size-at)], at) // an error is a short read
		if n < recordHeader {
			break
		}
		for i := 0; i+recordHeader <= n; i++ {
			if r, ok := parseRecord(buf[i:n]); ok && r.kind != 0 && at+int64(i)+recordHeader+int64(r.length) <= size {
				return at + int64(i), true
			}
		}
		at += int64(n - recordHeader + 1)
	}
	return -1, false
}

// readPayload returns the payload of the record at a position, or errDamaged.
func readPayload(file io.ReaderAt, at int64) (record, []byte, error) {
	var h [recordHeader]byte
	if _, err := file.ReadAt(h[:], at); err != nil {
		return record{}, nil, fmt.Errorf("reading the journal: %w", err)
	}
	r, ok := parseRecord(h[:])
	if !ok {
		return record{}, nil, errDamaged
	}
	payload := make([]byte, r.length)
	if _, err := file.ReadAt(payload, at+recordHeader); err != nil {
		return record{}, nil, fmt.Errorf("reading the journal: %w", err)
	}
	if crc32.Checksum(payload, castagnoli) != r.sum {
		return record{}, nil, errDamaged
	}
	return r, payload, nil
}

// encode returns an intent as a payload: the digest and the begin, then the texts with
// their lengths.
func (in Intent) encode(dst []byte, begin int64) []byte {
	dst = append(dst, in.Digest[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(begin)) //nolint:gosec // read back by the same rule
	for _, text := range []string{in.ID, in.Kind, in.Session, in.Text, in.Form} {
		dst = binary.AppendUvarint(dst, uint64(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// decodeIntent reads a payload of encode. All texts share one copy of it.
func decodeIntent(p []byte) (in Intent, begin int64, ok bool) {
	if len(p) < len(in.Digest)+8 {
		return in, 0, false
	}
	p = p[copy(in.Digest[:], p):]
	begin = int64(binary.LittleEndian.Uint64(p)) //nolint:gosec // written by the same rule
	p = p[8:]
	all := string(p)
	for _, text := range []*string{&in.ID, &in.Kind, &in.Session, &in.Text, &in.Form} {
		n, size := binary.Uvarint(p)
		if size <= 0 || n > checkedPayload || int(n) > len(p)-size {
			return in, 0, false
		}
		end := size + int(n)
		*text = all[size:end]
		p, all = p[end:], all[end:]
	}
	return in, begin, begin >= 0 && in.ID != "" && len(p) == 0
}
