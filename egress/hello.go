package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	maxHello  = 32 << 10
	helloTime = 30 * time.Second

	// A TLS connection begins with the type of a record and 3. Servers skip some records before
	// that of the hello.
	firstRecordType = 0x14
	lastRecordType  = 0x18
	recordMajor     = 3
)

// AccessDenied is the record that ends a connection because of its TLS hello: a fatal
// alert 49 (RFC 8446, 6.2).
var AccessDenied = []byte{0x15, 3, 3, 0, 2, 2, 49}

// helloReader reads the bytes of a client. If they begin as TLS does, it passes nothing on before
// check has accepted the hello. The reader of other protocols waits for no more than two bytes.
type helloReader struct {
	io.Reader // the bytes of the client; afterwards with the hello before them

	check    func(name string, readable bool) error // name is "" where the hello has none
	deadline func(time.Time) error                  // of reads from the client
	begun    bool
}

func (r *helloReader) Read(p []byte) (int, error) {
	if r.begun {
		return r.Reader.Read(p)
	}
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
	h := hello{from: io.MultiReader(bytes.NewReader(p[:n]), r.Reader)}
	readable := h.parse()
	_ = r.deadline(time.Time{})
	if h.broken != nil {
		return 0, h.broken
	}
	if err := r.check(h.name, readable); err != nil {
		return 0, err
	}
	r.Reader = io.MultiReader(&h.read, r.Reader)
	return r.Reader.Read(p)
}

// hello is a TLS hello: a connection that only reads, and keeps the bytes that it read.
type hello struct {
	net.Conn // nil: crypto/tls calls nothing else up to the end of the hello

	from   io.Reader
	broken error // of from
	read   bytes.Buffer
	name   string
}

var (
	errHelloRead = errors.New("the hello was read")
	errHelloLong = errors.New("the hello is too long")
)

// parse reads a hello. It returns false if that is none.
func (h *hello) parse() bool {
	err := tls.Server(h, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name = info.ServerName
			return nil, errHelloRead
		},
	}).HandshakeContext(context.Background()) // the connection has a deadline
	return errors.Is(err, errHelloRead)
}

func (h *hello) Read(p []byte) (int, error) {
	if h.read.Len() >= maxHello {
		return 0, errHelloLong
	}
	n, err := h.from.Read(p[:min(len(p), maxHello-h.read.Len())])
	h.read.Write(p[:n])
	h.broken = err
	return n, err
}

// Write drops the alert that follows here.
func (h *hello) Write(p []byte) (int, error) { return len(p), nil }
