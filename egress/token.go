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

// maxTelling bounds the requests that are answered at a time on connections of a sandbox beyond those that
// it may have.
const maxTelling = 8

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

// checkToken returns the error of the hash of a token, or nil.
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
	var shown sync.Map // *tokenConn by connection
	inner, changed := srv.ConnContext, srv.ConnState
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		t := &tokenConn{conn: c}
		shown.Store(c, t)
		return context.WithValue(inner(ctx, c), tokenConnKey{}, t)
	}
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		changed(c, state)
		if state != http.StateClosed && state != http.StateHijacked {
			return
		}
		if t, ok := shown.LoadAndDelete(c); ok {
			t.(*tokenConn).ended(state) //nolint:forcetypeassert // it has no others
		}
	}
	err := srv.Serve(httpserver.LimitListener(l, s.shared))
	if ctx.Err() != nil {
		return nil // that was the end
	}
	return err
}

// tokenConn counts a connection among those of its sandbox. Only the goroutine of the connection uses
// it, but for conn.
type tokenConn struct {
	conn     net.Conn
	holder   *sandbox // nil until count
	hijacked bool     // the connection ends with its request, and the server does not report that
}

// tokenConnKey is the context key of a [tokenConn].
type tokenConnKey struct{}

// count counts the connection until release. It returns false where the sandbox has too many.
func (t *tokenConn) count(b *sandbox) bool {
	if t.holder != nil {
		return t.holder == b
	}
	if b.asking.Add(1) > maxOpenSandbox+maxWaiting {
		b.asking.Add(-1)
		return false
	}
	t.holder = b
	return true
}

// ended notes that the server has closed the connection, or given it to its request.
func (t *tokenConn) ended(state http.ConnState) {
	t.hijacked = state == http.StateHijacked
	if !t.hijacked {
		t.release()
	}
}

func (t *tokenConn) release() {
	if t.holder != nil {
		t.holder.asking.Add(-1)
		t.holder = nil
	}
}

// serveToken lets the sandbox answer that the token of a request names. Only connections that count are
// the sandbox's, and trusted while they wait for a host or are open: a sandbox could otherwise hold all of them, by
// keeping them idle or by announcing a body that it never sends. Where there are too many, those of the sandbox
// that has the most go first.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	b := s.holder(r.Header.Get(HeaderToken))
	if b == nil {
		w.Header().Set("Proxy-Authenticate", "Bearer")
		http.Error(w, "The token of a sandbox is needed", http.StatusProxyAuthRequired)
		return
	}
	t := r.Context().Value(tokenConnKey{}).(*tokenConn) //nolint:forcetypeassert // each connection has one
	// The state and the denials are for the controller, also while the sandbox uses all that it may.
	if r.URL.Path != "/status" || r.Method != http.MethodGet {
		if t.count(b) {
			httpserver.Own(r, b)
		} else {
			defer b.telling.Add(-1)
			if b.telling.Add(1) > maxTelling || r.URL.Path != "/denied" || r.Method != http.MethodGet {
				w.Header().Set("Retry-After", "1")
				http.Error(w, errTooMany.text, errTooMany.status)
				return
			}
			query := r.URL.Query()
			query.Del("wait") // requests of the sandbox's own would wait in all places
			r.URL.RawQuery = query.Encode()
		}
		defer func() {
			if t.hijacked {
				t.release()
			}
		}()
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	defer context.AfterFunc(b.life, func() { //nolint:contextcheck // the sandbox may end before the request
		end()
		_ = t.conn.Close() // its client may not read the answer
	})()
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
