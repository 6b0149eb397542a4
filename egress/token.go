package egress

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/random"
)

// A proxy that sandboxes share over TCP knows each by its token, as a proxy with Unix sockets knows
// it by the socket.

// HeaderToken has "Bearer " and the token of the sandbox in requests by TCP.
const HeaderToken = "Proxy-Authorization"

// maxConnections bounds the connections by TCP, of which half may be without a token.
const maxConnections = 4 * maxOpen

// NewToken returns a token of 256 random bits for a sandbox, which names it, and its hash for
// [Conf.Token].
func NewToken(id string) (token, hash string) {
	token = id + "." + random.Hex(32)
	return token, HashToken(token)
}

// HashToken returns the hash of a token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// checkToken returns what is wrong with the hash of a token, or nil.
func (c *Conf) checkToken() error {
	if sum, err := hex.DecodeString(c.Token); err != nil || len(sum) != sha256.Size && len(sum) != 0 {
		return errors.New("token is not the SHA-256 of one in hexadecimal digits")
	}
	return nil
}

// Serve answers sandboxes by their tokens on a listener, which it closes, until ctx ends. Connections
// of sandboxes end with [Server.Close].
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := httpserver.NewServer(ctx, http.HandlerFunc(s.serveToken), maxHeader, s.cfg.Log)
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	var places sync.Map // of *place, by their connection
	inner, changed := srv.ConnContext, srv.ConnState
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		p := &place{}
		places.Store(c, p)
		return context.WithValue(inner(ctx, c), placeKey{}, p)
	}
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		changed(c, state)
		if state != http.StateClosed && state != http.StateHijacked {
			return
		}
		if p, ok := places.LoadAndDelete(c); ok {
			p.(*place).ended(state) //nolint:forcetypeassert // it has no others
		}
	}
	err := srv.Serve(httpserver.LimitListener(l, s.shared))
	if ctx.Err() != nil {
		return nil // that was the end
	}
	return err
}

// place is that of a connection among those of its sandbox. The goroutine of the connection alone
// uses it.
type place struct {
	holder   *sandbox // nil until take
	hijacked bool     // the connection ends with its request, of which the server no longer tells
}

// placeKey is the context key of a connection's place.
type placeKey struct{}

// take counts a connection from its first request to its end. It returns false where the sandbox has too many.
func (p *place) take(b *sandbox) bool {
	if p.holder != nil {
		return p.holder == b
	}
	if b.asking.Add(1) > maxOpenSandbox+maxWaiting {
		b.asking.Add(-1)
		return false
	}
	p.holder = b
	return true
}

// ended notes that the server has closed the connection, or given it to its request.
func (p *place) ended(state http.ConnState) {
	p.hijacked = state == http.StateHijacked
	if !p.hijacked {
		p.leave()
	}
}

func (p *place) leave() {
	if p.holder != nil {
		p.holder.asking.Add(-1)
		p.holder = nil
	}
}

// serveToken lets the sandbox answer that the token of a request names. Only connections that count
// are trusted: one that is kept, or never sends the body that it announced, would otherwise take a
// place from other sandboxes for as long as it likes.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	b := s.holder(r.Header.Get(HeaderToken))
	if b == nil {
		w.Header().Set("Proxy-Authenticate", "Bearer")
		http.Error(w, "The token of a sandbox is needed", http.StatusProxyAuthRequired)
		return
	}
	// The state is for the controller, also while the sandbox uses all that it may.
	if r.URL.Path != "/status" || r.Method != http.MethodGet {
		p := r.Context().Value(placeKey{}).(*place) //nolint:forcetypeassert // each connection has one
		if !p.take(b) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, errTooMany.text, errTooMany.status)
			return
		}
		httpserver.Trust(r)
		defer func() {
			if p.hijacked {
				p.leave()
			}
		}()
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	defer context.AfterFunc(b.life, end)() //nolint:contextcheck // the sandbox may end before the request
	b.ServeHTTP(w, r.WithContext(ctx))
}

// holder returns the sandbox of a token, or nil.
func (s *Server) holder(header string) *sandbox {
	scheme, token, _ := strings.Cut(header, " ")
	id, _, _ := strings.Cut(token, ".")
	b, err := s.sandbox(id)
	if err != nil || !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	b.mu.Lock()
	want := b.conf.Token
	b.mu.Unlock()
	if want == "" || subtle.ConstantTimeCompare([]byte(HashToken(token)), []byte(want)) != 1 {
		return nil
	}
	return b
}
