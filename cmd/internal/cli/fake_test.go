package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A fakeServer answers requests, named by method and URI, with texts, and remembers what was asked. A name that ends
// in a slash is that of all below it.
type fakeServer struct {
	mu      sync.Mutex
	asked   []string // with bodies
	answers map[string]string
}

// serve puts a server with answers in the place of that of a sandbox named "box".
func (m localMachine) serve(answers map[string]string) *fakeServer {
	f := &fakeServer{answers: answers}
	m.impostor(func(w io.Writer, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		answer, ok := f.answers[r.Method+" "+r.RequestURI]
		for name, text := range f.answers {
			if !ok && strings.HasSuffix(name, "/") && strings.HasPrefix(r.Method+" "+r.RequestURI, name) {
				answer, ok = text, true
			}
		}
		status := 200
		if !ok {
			status, answer = 404, `{"detail":"no such thing"}`
		}
		if refused, ok := strings.CutPrefix(answer, "409 "); ok {
			status, answer = 409, `{"detail":"`+refused+`"}`
		}
		_, _ = fmt.Fprintf(w, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(answer), answer)
	})
	return f
}

// answer has the server answer a request with a text from now on.
func (f *fakeServer) answer(request, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[request] = text
}

// take returns what was asked since the last call, without other requests than those that begin so.
func (f *fakeServer) take(begin string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return slices.DeleteFunc(asked, func(line string) bool { return !strings.HasPrefix(line, begin) })
}
