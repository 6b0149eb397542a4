package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// The format of a segment: a header of fileHeader bytes (magic, version), then records: a header of recordHeader bytes
// and the payload. The checksum of the header covers the one of the payload, so that payloads may be skipped.
const (
	magic        = "actiondc"
	version      = 1
	fileHeader   = 16
	recordHeader = 56

	raw        = 0
	compressed = 1
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errDamaged = errors.New("damaged")
)

// segment is a file of records. Only the last one grows.
type segment struct {
	n    uint64
	file *os.File
	data []byte // instead, of one in memory
	size int64
}

func segmentName(n uint64) string { return fmt.Sprintf("%s%d", prefix, n) }

// header is that of a record.
type header struct {
	sum         Sum
	stored, len uint32 // bytes of the payload, and of the content
	codec       byte
	check       uint32 // of the payload
}

func appendFileHeader(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// headOf is the header of a record as it is written.
func headOf(h header, payload []byte) []byte {
	var b [recordHeader]byte
	le := binary.LittleEndian
	le.PutUint32(b[4:], crc32.Checksum(payload, castagnoli))
	le.PutUint32(b[8:], h.stored)
	le.PutUint32(b[12:], h.len)
	b[16] = h.codec
	copy(b[24:], h.sum[:])
	le.PutUint32(b[0:], crc32.Checksum(b[4:], castagnoli))
	return b[:]
}

// parseHeader reads the header of a record; false where it is damaged.
func parseHeader(b []byte) (header, bool) {
	le := binary.LittleEndian
	if len(b) < recordHeader || le.Uint32(b) != crc32.Checksum(b[4:recordHeader], castagnoli) {
		return header{}, false
	}
	h := header{stored: le.Uint32(b[8:]), len: le.Uint32(b[12:]), codec: b[16], check: le.Uint32(b[4:])}
	copy(h.sum[:], b[24:])
	return h, h.codec <= compressed && h.len <= MaxContent && h.stored <= MaxContent &&
		(h.codec == compressed || h.stored == h.len)
}

// scan calls each for the records of a segment, and returns the end of the last good one. It reads headers, and where
// last is set the payload of the last record too, which a killed process may have left torn. It fails with errDamaged
// for what is no segment, and with ErrNewer.
func scan(f io.ReaderAt, size int64, last bool, each func(h header, at int64)) (end int64, err error) {
	var b [recordHeader]byte
	if n, _ := f.ReadAt(b[:fileHeader], 0); n < fileHeader || string(b[:len(magic)]) != magic { // an error is a short read
		return 0, errDamaged
	}
	switch v := binary.LittleEndian.Uint32(b[len(magic):]); {
	case v > version:
		return 0, ErrNewer
	case v < version:
		return 0, errDamaged
	}
	at := int64(fileHeader)
	for at+recordHeader <= size {
		if n, _ := f.ReadAt(b[:], at); n < recordHeader {
			break
		}
		h, ok := parseHeader(b[:])
		next := at + recordHeader + int64(h.stored)
		if !ok || next > size {
			break
		}
		if last && next+recordHeader > size && !wholePayload(f, h, at) {
			break
		}
		each(h, at)
		at = next
	}
	return at, nil
}

func wholePayload(f io.ReaderAt, h header, at int64) bool {
	payload := make([]byte, h.stored)
	n, _ := f.ReadAt(payload, at+recordHeader) // an error is a short read
	return n == len(payload) && crc32.Checksum(payload, castagnoli) == h.check
}

// length is the number of bytes of a record; 0 where it cannot be read.
func (p place) length() int64 {
	var b [recordHeader]byte
	if n, _ := p.seg.file.ReadAt(b[:], p.at); n < recordHeader { // an error is a short read
		return 0
	}
	h, ok := parseHeader(b[:])
	if !ok {
		return 0
	}
	return recordHeader + int64(h.stored)
}

// read returns a record. It fails with errDamaged.
func (p place) read() ([]byte, error) {
	if p.seg.file == nil {
		return bytes.Clone(p.seg.data), nil // the caller gets it
	}
	var b [recordHeader]byte
	if _, err := p.seg.file.ReadAt(b[:], p.at); err != nil {
		return nil, readError(err)
	}
	h, ok := parseHeader(b[:])
	if !ok || p.at+recordHeader+int64(h.stored) > p.seg.size {
		return nil, errDamaged
	}
	rec := make([]byte, recordHeader+int(h.stored))
	if _, err := p.seg.file.ReadAt(rec, p.at); err != nil {
		return nil, readError(err)
	}
	return rec, nil
}

func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errDamaged
	}
	return fmt.Errorf("reading the store of contents: %w", err)
}
