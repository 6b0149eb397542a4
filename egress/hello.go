package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

const (
	maxHello  = 32 << 10
	helloTime = 30 * time.Second

	earlyBuffer = 16 << 10

	// A TLS connection begins with the type of a record and 3. Servers skip some records before
	// that of the hello.
	firstRecordType = 0x14
	lastRecordType  = 0x18
	recordHandshake = 0x16
	recordData      = 0x17
	recordMajor     = 3
	recordHead      = 5 // type, version, length

	messageHello       = 1
	extensionEarlyData = 42
)

// AccessDenied is the record that ends a connection because of its TLS hello: a fatal
// alert 49 (RFC 8446, 6.2).
var AccessDenied = []byte{0x15, 3, 3, 0, 2, 2, 49}

// helloReader reads the bytes of a client. If they begin as TLS does, it passes nothing on before
// check has accepted the hello, and follows the records up to the end of the handshake: where a server of
// TLS 1.3 asks for a second hello, many take the name in that one. The reader of other protocols waits for
// no more than two bytes.
type helloReader struct {
	io.Reader // the bytes of the client

	check    func(name string, readable bool) error // name is "" where the hello has none
	deadline func(time.Time) error                  // of reads from the client
	begun    bool
	follows  bool          // another record begins behind passing and rest
	early    *bufio.Reader // is read where a server may skip application data before a second hello (RFC 8446, 4.2.10): its records are small
	passing  []byte        // what was read and checked
	rest     int           // bytes of the present record that pass unread
}

func (r *helloReader) Read(p []byte) (int, error) {
	if !r.begun {
		return r.begin(p)
	}
	if r.follows && len(r.passing) == 0 && r.rest == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	switch {
	case len(r.passing) > 0:
		n := copy(p, r.passing)
		r.passing = r.passing[n:]
		if r.early != nil && len(r.passing) == 0 { // one write for the record, as far as it is there
			more, _ := io.ReadFull(r.early, p[n:][:min(len(p)-n, r.rest, r.early.Buffered())])
			n, r.rest = n+more, r.rest-more
		}
		return n, nil
	case r.follows && r.rest > 0:
		n, err := r.Reader.Read(p[:min(len(p), r.rest)])
		r.rest -= n
		return n, err
	}
	return r.Reader.Read(p)
}

// begin is the first Read.
func (r *helloReader) begin(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n == 0 {
		return 0, err
	}
	r.begun = true
	if p[0] < firstRecordType || p[0] > lastRecordType {
		return n, err
	}
	_ = r.deadline(time.Now().Add(helloTime)) // a connection that cannot have one is broken
	for n == 1 && len(p) > 1 && err == nil {
		var more int
		more, err = r.Reader.Read(p[1:])
		n += more
	}
	if len(p) > 1 && (n == 1 || p[1] != recordMajor) {
		_ = r.deadline(time.Time{})
		return n, err
	}
	r.Reader = io.MultiReader(bytes.NewReader(bytes.Clone(p[:n])), r.Reader)
	err = r.hello(nil)
	_ = r.deadline(time.Time{})
	if err != nil {
		return 0, err
	}
	return r.Read(p)
}

// hello reads a hello, of which the beginning was read, and has it checked.
func (r *helloReader) hello(begun []byte) error {
	h := hello{}
	readable, err := h.readRecords(io.MultiReader(bytes.NewReader(begun), r.Reader))
	if err != nil {
		return err
	}
	r.passing = bytes.Clone(h.read.Bytes()) // parse empties it
	readable = readable && h.parse()
	if err := r.check(h.name, readable); err != nil {
		return err
	}
	r.follows = true
	if h.early && r.early == nil {
		r.early = bufio.NewReaderSize(r.Reader, earlyBuffer)
		r.Reader = r.early
	}
	return nil
}

// next reads the beginning of a record behind a hello, or all of another hello.
func (r *helloReader) next() error {
	head := make([]byte, recordHead+2)
	n, err := io.ReadFull(r.Reader, head[:recordHead])
	if err != nil {
		r.follows, r.passing = false, head[:n]
		return nil //nolint:nilerr // the next Read finds it again
	}
	kind, size := head[0], int(binary.BigEndian.Uint16(head[3:]))
	if kind < firstRecordType || kind > lastRecordType || head[1] != recordMajor || kind == recordData && r.early == nil {
		r.follows, r.passing = false, head[:recordHead]
		return nil
	}
	if kind != recordHandshake || size == 0 {
		r.passing, r.rest = head[:recordHead], size
		return nil
	}
	n, err = io.ReadFull(r.Reader, head[recordHead:][:min(size, 2)])
	head = head[:recordHead+n]
	// In TLS 1.2 this is the end of a handshake, which may be encrypted: if it resumes a session, one of 65,536
	// looks like a hello. The length of a hello that can be read begins with 0.
	if err == nil && head[recordHead] == messageHello && (n == 1 || head[recordHead+1] == 0) {
		return r.hello(head)
	}
	r.follows, r.passing = false, head
	return nil
}

// hello is a TLS hello: a connection that only reads.
type hello struct {
	net.Conn // nil: crypto/tls calls nothing else up to the end of the hello

	read  bytes.Buffer // the records
	name  string
	early bool // it says that application data follows
}

var errHelloRead = errors.New("the hello was read")

// readRecords reads records up to the end of the hello. It returns false for a hello that is too long, or
// where other data is in its records: none of that would be checked.
func (h *hello) readRecords(from io.Reader) (bool, error) {
	var message []byte // of type and length, 3 bytes, and content
	for {
		at := h.read.Len()
		if _, err := io.CopyN(&h.read, from, recordHead); err != nil {
			return false, err
		}
		head := h.read.Bytes()[at:]
		kind, size := head[0], int64(binary.BigEndian.Uint16(head[3:]))
		if kind == recordData || head[1] != recordMajor || int64(h.read.Len())+size > maxHello {
			return false, nil
		}
		if _, err := io.CopyN(&h.read, from, size); err != nil {
			return false, err
		}
		if kind != recordHandshake {
			continue
		}
		message = append(message, h.read.Bytes()[at+recordHead:]...)
		if len(message) < 4 {
			continue
		}
		if rest := 4 + int(binary.BigEndian.Uint32(message)&0xffffff) - len(message); rest <= 0 {
			return rest == 0, nil
		}
	}
}

// parse parses the bytes read. It returns false if they are not a hello.
func (h *hello) parse() bool {
	err := tls.Server(h, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name, h.early = info.ServerName, slices.Contains(info.Extensions, extensionEarlyData)
			return nil, errHelloRead
		},
	}).HandshakeContext(context.Background()) // it reads from memory
	return errors.Is(err, errHelloRead)
}

func (h *hello) Read(p []byte) (int, error) { return h.read.Read(p) }

// Write drops the alert that follows here.
func (h *hello) Write(p []byte) (int, error) { return len(p), nil }
