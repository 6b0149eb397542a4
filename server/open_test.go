package server_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/server"
)

// body is a request body that records how much of it was read.
type body struct {
	mu   sync.Mutex
	left int
	read int
	gate chan struct{} // where not nil, a read waits for an element
}

func (b *body) Read(p []byte) (int, error) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = ' '
	}
	b.left -= n
	b.read += n
	return n, nil
}

func (*body) Close() error { return nil }

// sendBody posts a JSON body and returns the status.
func sendBody(s http.Handler, path, key string, b *body, length int64) int {
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Body, r.ContentLength = b, length
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("X-Session-API-Key", key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// A client without a key makes the server read nothing, or at most some KiB.
func TestOpenRoutesAskFirst(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	hash := sha256.Sum256([]byte("the ticket"))
	withTicket := func(cfg *server.Config) { cfg.ClaimHash = hash[:] }
	for _, tt := range []struct {
		name    string
		change  []func(*server.Config)
		claimed bool
		status  int
		most    int // bytes that may be read where the length is not announced
	}{
		{"a server with a key", []func(*server.Config){withKey}, false, http.StatusConflict, 0},
		{"a server without a key", nil, false, http.StatusConflict, 0},
		{"without the ticket", []func(*server.Config){withClaim, withTicket}, false, http.StatusForbidden, 0},
		{"claimed, without the ticket", []func(*server.Config){withClaim, withTicket}, true, http.StatusForbidden, 0},
		{"no ticket is needed", []func(*server.Config){withClaim}, false, http.StatusRequestEntityTooLarge, 128 << 10},
		{"claimed, no ticket is needed", []func(*server.Config){withClaim}, true, http.StatusRequestEntityTooLarge, 128 << 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.change...)
			if tt.claimed {
				q := claimBy(ownersKey)
				q.key = "the ticket"
				if w := q.send(s); w.Code != http.StatusNoContent {
					t.Fatalf("claiming: status %d: %s", w.Code, w.Body)
				}
			}
			for _, length := range []int64{size, -1} {
				b := &body{left: size}
				if status := sendBody(s, "/v1/claim", "", b, length); status != tt.status {
					t.Errorf("length %d: got %d, want %d", length, status, tt.status)
				}
				if b.read > tt.most || length > 0 && b.read > 0 {
					t.Errorf("length %d: the server read %d bytes", length, b.read)
				}
			}
		})
	}
	t.Run("other routes", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, withKey)
		for _, rt := range s.Routes() {
			if rt.Path == "/v1/claim" {
				continue
			}
			b := &body{left: size}
			sendBody(s, strings.ReplaceAll(rt.Path, "{name}", "x"), "wrong", b, size)
			if b.read > 0 {
				t.Errorf("POST %s: the server read %d bytes", rt.Path, b.read)
			}
		}
	})
}

// Of many claims one is read at a time.
func TestClaimsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, withClaim)
		const clients = 20
		gate := make(chan struct{})
		var all sync.WaitGroup
		bodies := make([]*body, clients)
		for i := range bodies {
			bodies[i] = &body{left: 1000, gate: gate}
			all.Go(func() { sendBody(s, "/v1/claim", "", bodies[i], 1000) })
		}
		for range 5 {
			synctest.Wait()
			select { // a body that waits takes an element and waits again for its end
			case gate <- struct{}{}:
			default:
			}
		}
		synctest.Wait()
		begun := 0
		for _, b := range bodies {
			if b.read > 0 {
				begun++
			}
		}
		close(gate)
		all.Wait()
		if begun != 3 {
			t.Errorf("five reads began %d claims, want 3: two that ended and the next one", begun)
		}
	})
}

// A header of very many lines takes far more memory than bytes. It ends the
// connection of a client that has shown no key, however slowly it comes, and also
// behind another request.
func TestManyHeaderLines(t *testing.T) {
	t.Parallel()
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%x: \r\n", i)
		}
		return b.String()
	}
	served(t, &fake{}, func(t bubble) {
		c := t.dial()
		defer c.Close()
		c.say("GET /v1/status HTTP/1.1\r\nHost: x\r\n%s", lines(5000)) // without an end
		if status, _ := c.hear(); status != http.StatusBadRequest {
			t.Errorf("got %d for a header without end, want 400", status)
		}

		c = t.dial()
		defer c.Close()
		for range 3 { // each header is counted by itself
			c.say("POST /alive HTTP/1.1\r\nHost: x\r\n%sContent-Length: 1000\r\n\r\n%s", lines(150), strings.Repeat("\n", 1000))
			if status, _ := c.hear(); status != http.StatusMethodNotAllowed {
				t.Fatalf("got %d for a header of 150 lines, want 405", status)
			}
		}
		c.say("GET /alive HTTP/1.1\r\nHost: x\r\n%s\r\n", lines(5000))
		if status, _ := c.hear(); status != 0 && status != http.StatusBadRequest {
			t.Errorf("got %d for the last header, want 400 or the end", status)
		}

		c = t.dial()
		defer c.Close()
		c.say("GET /alive HTTP/1.1\r\nHost: x\r\nX-Session-API-Key: key\r\n\r\n")
		if status, _ := c.hear(); status != http.StatusOK {
			t.Errorf("got %d with the key, want 200", status)
		}
		c.say("GET /alive HTTP/1.1\r\nHost: x\r\n%s\r\n", lines(1000))
		if status, _ := c.hear(); status != http.StatusOK {
			t.Errorf("got %d for 1,000 lines from the owner, want 200", status)
		}
	}, func(cfg *server.Config) { cfg.Key = "key" })
}
