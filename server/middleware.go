package server

import (
	"net"
	"net/http"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// boundBodies bounds the time between the parts of a body, and counts the bytes.
func (s *Server) boundBodies(next http.Handler) http.Handler {
	return httpserver.Bodies(next, s.metrics.Received)
}

// authenticate asks for the key on every path that is not open.
func (s *Server) authenticate(routes []httpserver.Route) func(http.Handler) http.Handler {
	open := httpserver.IsOpen(routes)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.admits(r)
			switch {
			case err == nil:
				httpserver.Trust(r)
			case !open(r):
				s.fail(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// admits returns nil for a request that has the key, or needs none.
func (s *Server) admits(r *http.Request) error {
	if !s.locked() {
		return nil
	}
	return s.owner.check(sentKey(r))
}

// locked tells whether there is a key to ask for, or will be.
func (s *Server) locked() bool { return s.cfg.Key != "" || s.cfg.Claim }

// sentKey is the key that came with a request. Most MCP clients can send theirs
// as a bearer token only, so where they go that will do too.
func sentKey(r *http.Request) string {
	if len(r.Header.Values(api.KeyHeader)) == 0 && r.URL.RawPath == "" && r.URL.Path == toolsPath {
		return bearer(r)
	}
	return r.Header.Get(api.KeyHeader)
}

// bearer is the bearer token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// sameOrigin refuses what a foreign web page makes a browser send. Without a
// key nothing else would keep a page that is open on the same machine from
// uploading files here, and one whose name was made to mean this machine would be
// of the same origin. Clients that are no browsers are not concerned.
func (s *Server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	refused := &api.Error{Status: http.StatusForbidden, Detail: "This request comes from a web page of another origin; send it without a browser"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case protection.Check(r) != nil:
			s.fail(w, r, refused)
		case !s.locked() && fromBrowser(r) && renamed(r):
			s.fail(w, r, refuse(http.StatusForbidden, "A server without a key answers browsers by no other name of this machine than localhost, and not by %q", r.Host))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fromBrowser tells whether a browser may have sent a request: all of them say
// what language they like, whatever a page's script asks for.
func fromBrowser(r *http.Request) bool {
	return len(r.Header["Accept-Language"]) > 0 || len(r.Header["Origin"]) > 0
}

// renamed tells whether a request came over the loopback interface to another name
// than localhost, as after a web page had its name changed to mean this machine.
func renamed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	host := hostOf(r)
	return ok && local.IP.IsLoopback() && host != "" && !strings.EqualFold(host, "localhost") && net.ParseIP(host) == nil
}

// hostOf is the host that a request names, without a port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	return host
}
