package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Handler responds to a request, or returns an error without a response.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Fail responds to a request whose handler returned an error.
type Fail func(w http.ResponseWriter, r *http.Request, err error)

// Refuse returns the error of a request that is answered with a status 4xx.
type Refuse func(status int, format string, args ...any) error

// Protocol defines how a program refuses requests.
type Protocol struct {
	Fail   Fail
	Refuse Refuse
	// CheckQuery returns an error for a query that the route with a method and a path
	// does not accept.
	CheckQuery func(method, path, query string) error
}

// Route is a line of the table of routes.
type Route struct {
	Method, Path string
	Open         bool // no key is required
	Handle       Handler
}

// Open returns a route that requires no key.
func Open(method, path string, h Handler) Route {
	return Route{Method: method, Path: path, Open: true, Handle: h}
}

// Keyed returns a route that requires a key.
func Keyed(method, path string, h Handler) Route {
	return Route{Method: method, Path: path, Handle: h}
}

// NewRouter returns a handler for routes, which refuses all other requests. Requests
// pass the middlewares in the given order, then the check of the query.
func NewRouter(routes []Route, p Protocol, middlewares ...func(http.Handler) http.Handler) http.Handler {
	mux := chi.NewRouter()
	mux.Use(middlewares...)
	// These come first, because chi passes them to all routes that there are.
	mux.NotFound(Answer(func(http.ResponseWriter, *http.Request) error {
		return p.Refuse(http.StatusNotFound, "Not Found")
	}, p.Fail))
	mux.MethodNotAllowed(Answer(func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		return p.Refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	}, p.Fail))
	for _, rt := range routes {
		mux.Method(rt.Method, rt.Path, Answer(func(w http.ResponseWriter, r *http.Request) error {
			if err := p.CheckQuery(rt.Method, rt.Path, r.URL.RawQuery); err != nil {
				return err
			}
			return rt.Handle(w, r)
		}, p.Fail))
	}
	return mux
}

// Answer adapts a Handler to net/http.
func Answer(h Handler, fail Fail) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			fail(w, r, err)
		}
	}
}

// IsOpen returns a function that reports whether a request is for an open path,
// whatever its method. An encoded form of an open path is not open.
func IsOpen(routes []Route) func(*http.Request) bool {
	open := map[string]bool{}
	for _, rt := range routes {
		if rt.Open {
			open[rt.Path] = true
		}
	}
	return func(r *http.Request) bool { return r.URL.RawPath == "" && open[r.URL.Path] }
}

// Bearer returns the bearer token of a request, or "".
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// SameKey compares two keys in constant time: their hashes, which have one length.
func SameKey(a, b string) bool {
	hashA, hashB := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(hashA[:], hashB[:]) == 1
}

// DifferentKeys is the detail of the refusal of a request with different keys in two headers,
// with status 401: which one the client means is unknown.
const DifferentKeys = "The headers of the request have different keys: send one"
