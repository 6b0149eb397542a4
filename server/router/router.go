// Package router finds what answers a request, for both HTTP servers of the house.
package router

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/actiond/actiond/api"
)

// Handler answers a request, or returns why it did not.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Fail answers for a handler that did not.
type Fail func(w http.ResponseWriter, r *http.Request, err error)

// Route is one thing that can be asked for.
type Route struct {
	Method, Path string
	Open         bool // needs no key
	Handle       Handler
}

// Open is a route that needs no key.
func Open(method, path string, h Handler) Route {
	return Route{Method: method, Path: path, Open: true, Handle: h}
}

// Keyed is a route that needs a key.
func Keyed(method, path string, h Handler) Route {
	return Route{Method: method, Path: path, Handle: h}
}

// New returns what answers the requests for routes, and refuses all others, behind
// middlewares, the first of which comes first.
func New(routes []Route, fail Fail, middlewares ...func(http.Handler) http.Handler) http.Handler {
	mux := chi.NewRouter()
	mux.Use(middlewares...)
	for _, rt := range routes {
		mux.Method(rt.Method, rt.Path, Answer(rt.Handle, fail))
	}
	mux.NotFound(Answer(func(http.ResponseWriter, *http.Request) error {
		return &api.Error{Status: http.StatusNotFound, Detail: "Not Found"}
	}, fail))
	mux.MethodNotAllowed(Answer(func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		return &api.Error{Status: http.StatusMethodNotAllowed, Detail: "Method Not Allowed"}
	}, fail))
	return mux
}

// Answer makes an http.Handler of a handler.
func Answer(h Handler, fail Fail) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			fail(w, r, err)
		}
	}
}

// IsOpen returns what tells whether a request is for an open path, whatever its
// method. Paths are compared as they were sent: an open path in disguise is not
// open.
func IsOpen(routes []Route) func(*http.Request) bool {
	open := map[string]bool{}
	for _, rt := range routes {
		if rt.Open {
			open[rt.Path] = true
		}
	}
	return func(r *http.Request) bool { return r.URL.RawPath == "" && open[r.URL.Path] }
}
