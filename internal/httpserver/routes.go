package httpserver

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/actiond/actiond/api"
)

// Handler responds to a request, or returns an error without a response.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Fail responds to a request whose handler returned an error.
type Fail func(w http.ResponseWriter, r *http.Request, err error)

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
// pass the middlewares in the given order.
func NewRouter(routes []Route, fail Fail, middlewares ...func(http.Handler) http.Handler) http.Handler {
	mux := chi.NewRouter()
	mux.Use(middlewares...)
	for _, rt := range routes {
		mux.Method(rt.Method, rt.Path, Answer(checked(rt), fail))
	}
	mux.NotFound(Answer(func(http.ResponseWriter, *http.Request) error {
		return &api.Error{Status: http.StatusNotFound, Detail: "Not Found"}
	}, fail))
	mux.MethodNotAllowed(Answer(func(w http.ResponseWriter, r *http.Request) error {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		return &api.Error{Status: http.StatusMethodNotAllowed, Detail: "Method Not Allowed"}
	}, fail))
	return mux
}

// checked returns the handler of a route, below /v1/ behind a check of the query parameters.
func checked(rt Route) Handler {
	if !api.HasParameters(rt.Method, rt.Path) {
		return rt.Handle
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := api.CheckQuery(rt.Method, rt.Path, r.URL.RawQuery); err != nil {
			return err
		}
		return rt.Handle(w, r)
	}
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
