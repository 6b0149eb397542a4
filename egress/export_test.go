package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/actiond/actiond/internal/httpserver"
)

// Usable is usable.
var Usable = usable

// Denials are denials.
type Denials struct{ denials }

// NewDenials returns denials without any.
func NewDenials() *Denials { return &Denials{} }

// Add is add.
func (d *Denials) Add(one Denial) { d.add(one) }

// Await is await.
func (d *Denials) Await(ctx context.Context, after int64) []Denial { return d.await(ctx, after) }

// HelloReader returns a helloReader without a deadline.
func HelloReader(from io.Reader, check func(name string, readable bool) error) io.Reader {
	return &helloReader{Reader: from, check: check, deadline: func(time.Time) error { return nil }}
}

// LimitAccepted bounds the connections of all sandboxes that are applied later.
func (s *Server) LimitAccepted(most int) { s.accepted = httpserver.NewTotal(most) }

// LimitShared bounds the connections by TCP of listeners that are served later.
func (s *Server) LimitShared(most int) { s.shared = most }

// Asking returns how many connections by TCP count for a sandbox.
func (s *Server) Asking(id string) int64 { return s.sandboxes[id].asking.Load() }

// Held returns the bytes of all requests.
func (s *Server) Held() int64 { return s.held.Load() }

// Reserve is reserve.
var Reserve = reserve

// Buffered returns the bytes of the buffers of all HTTP/2 connections.
func (s *Server) Buffered() int64 { return s.buffered.Load() }

// OpenElsewhere counts n connections of other sandboxes.
func (s *Server) OpenElsewhere(n int64) { s.open.Add(n) }

// Unlimit lifts the limit on new connections of a sandbox.
func (s *Server) Unlimit(id string) { s.sandboxes[id].limit.SetLimit(rate.Inf) }

// LogNoMore lets no further lines of the log be written for a sandbox than those that it may have at once.
func (s *Server) LogNoMore(id string) { s.sandboxes[id].log.SetLimit(0) }

// Refuse lets a sandbox begin no further request, as close does first.
func (s *Server) Refuse(id string) { s.sandboxes[id].running.Close() }

// Scrub returns a reader of a body without the forms. A negative length is not known.
func Scrub(body io.ReadCloser, length int64, forms [][]byte) io.ReadCloser {
	res := &http.Response{Body: body, ContentLength: length}
	scrubBody(res, forms)
	return res.Body
}

// Forms returns the forms of a secret's value.
func Forms(s Secret) [][]byte {
	_, found := s.render()
	return found
}

// Certificate returns the chain of a certificate that ca signs for a host, in DER.
func Certificate(ca CA, host string) ([][]byte, error) {
	a, err := newAuthority(ca)
	if err != nil {
		return nil, err
	}
	c, err := a.certificate(host)
	if err != nil {
		return nil, err
	}
	if again, err := a.certificate(host); err != nil || again != c {
		return nil, errors.New("it was made twice")
	}
	for i := range 2 * maxLeaves {
		if _, err := a.certificate(fmt.Sprintf("h%d.example", i)); err != nil || len(a.leaves) > maxLeaves {
			return nil, fmt.Errorf("%d certificates are kept, %w", len(a.leaves), err)
		}
	}
	return c.Certificate, nil
}

// ServerTLS returns the configuration of hosts whose certificates ca signs.
func ServerTLS(ca CA) (*tls.Config, error) {
	a, err := newAuthority(ca)
	if err != nil {
		return nil, err
	}
	return a.tls, nil
}

// Header returns the name and the value of the header of a secret.
func Header(s Secret) (name, value string) {
	value, _ = s.render()
	return s.header(), value
}
