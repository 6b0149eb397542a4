package httpserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/actiond/actiond/internal/httpserver"
)

// says returns a handler that answers with a word.
func says(word string) httpserver.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprint(w, word, r.PathValue("name"))
		return err
	}
}

func breaks(http.ResponseWriter, *http.Request) error { return errors.New("broken") }

// refusal is an error with a status.
type refusal struct {
	status int
	error
}

// protocol sends an error's text with its status, and accepts no query on /things/{name}.
var protocol = httpserver.Protocol{
	Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
		status := http.StatusInternalServerError
		if refused, ok := errors.AsType[refusal](err); ok {
			status = refused.status
		}
		http.Error(w, err.Error(), status)
	},
	Refuse: func(status int, format string, args ...any) error {
		return refusal{status, fmt.Errorf(format, args...)}
	},
	CheckQuery: func(method, path, query string) error {
		if path != "/things/{name}" || query == "" {
			return nil
		}
		return refusal{http.StatusBadRequest, fmt.Errorf("%s %s: query %s", method, path, query)}
	},
}

var routes = []httpserver.Route{
	httpserver.Open(http.MethodGet, "/alive", says("alive")),
	httpserver.Keyed(http.MethodPost, "/break", breaks),
	httpserver.Keyed(http.MethodGet, "/things/{name}", says("thing ")),
	httpserver.Keyed(http.MethodPatch, "/things/{name}", says("other thing ")),
	httpserver.Keyed(http.MethodDelete, "/things/{name}", says("no thing ")),
}

func TestNew(t *testing.T) {
	t.Parallel()
	mark := func(text string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Add("Passed", text)
				next.ServeHTTP(w, r)
			})
		}
	}
	handler := httpserver.NewRouter(routes, protocol, mark("first"), mark("second"))
	for _, test := range []struct {
		method, path string
		status       int
		body         string
		allow        []string
	}{
		{"GET", "/alive", 200, "alive", nil},
		{"GET", "/things/x", 200, "thing x", nil},
		{"DELETE", "/things/x", 200, "no thing x", nil},
		{"GET", "/things/x?a=b", 400, "GET /things/{name}: query a=b\n", nil},
		{"GET", "/alive?a=b", 200, "alive", nil},
		{"POST", "/break", 500, "broken\n", nil},
		{"GET", "/nowhere", 404, "Not Found\n", nil},
		{"POST", "/things/x", 405, "Method Not Allowed\n", []string{"GET", "PATCH", "DELETE"}},
		{"BREW", "/break", 405, "Method Not Allowed\n", []string{"POST"}},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil))
		if w.Code != test.status || w.Body.String() != test.body || !slices.Equal(w.Header()["Allow"], test.allow) {
			t.Errorf("%s %s: got %d %q, Allow %q, want %d %q, %q", test.method, test.path, w.Code, w.Body, w.Header()["Allow"], test.status, test.body, test.allow)
		}
		if got, want := w.Header()["Passed"], []string{"first", "second"}; !slices.Equal(got, want) {
			t.Errorf("%s %s: went through %q, want %q", test.method, test.path, got, want)
		}
	}
}

func TestIsOpen(t *testing.T) {
	t.Parallel()
	isOpen := httpserver.IsOpen(routes)
	for path, want := range map[string]bool{
		"/alive":     true,
		"/alive?x=y": true,
		"/%61live":   false,
		"/alive/":    false,
		"//alive":    false,
		"/things/x":  false,
		"/nowhere":   false,
	} {
		if got := isOpen(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)); got != want {
			t.Errorf("%s: got %t, want %t", path, got, want)
		}
	}
}
