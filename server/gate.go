package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/shorten"
)

// maxRequestName bounds the path in the name of a request, in bytes.
const maxRequestName = 100

// gate keeps requests out that would change something while the server is upgraded.
type gate struct {
	upgrading sync.Mutex // held by the upgrade under way

	mu       sync.Mutex
	closed   bool
	held     chan struct{}  // closed once requests are no longer held; nil unless they are
	inside   map[string]int // by method and path
	upgrades Upgrades
}

func (g *gate) close(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
}

// hold has all requests wait that come from now on, until release.
func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

// wait returns once requests are not held, or ctx ends.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
}

func (g *gate) enter(request string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.inside == nil {
		g.inside = map[string]int{}
	}
	g.inside[request]++
	return true
}

func (g *gate) leave(request string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[request]--; g.inside[request] == 0 {
		delete(g.inside, request)
	}
}

// requests names those inside, but of those that carry out an action only so many as there are
// beyond that number.
func (g *gate) requests(flying int) (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := func(request string, n int) {
		switch {
		case n > 1:
			names = append(names, fmt.Sprintf("%d requests %s", n, request))
		case n > 0:
			names = append(names, "the request "+request)
		}
	}
	actions := -flying
	for request, n := range g.inside {
		if _, path, _ := strings.Cut(request, " "); slices.Contains(actionPaths, path) {
			actions += n
		} else {
			name(request, n)
		}
	}
	name("with an action or for its answer", actions)
	slices.Sort(names)
	return names
}

// actionPaths are those of requests that carry out an action from their first byte on.
var actionPaths = []string{"/execute_action", "/v1/actions", "/v1/tools/call", toolsPath}

// count counts an upgrade that was not done.
func (g *gate) count(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, refused := errors.AsType[*api.Error](err); refused {
		g.upgrades.Refused++
	} else {
		g.upgrades.Failed++
	}
}

func errUpgrading() error {
	return refuse(http.StatusTooManyRequests, "The server is being upgraded; nothing was done, try again")
}

// gated counts the requests that may change something, and refuses them during an upgrade. A
// request about a running action goes through, because it may end the action. An upgrade does not wait for
// attached terminals.
func (s *Server) gated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.gate.wait(r.Context())
		terminal := strings.HasSuffix(r.URL.Path, "/terminal")
		reads := (r.Method == http.MethodGet || r.Method == http.MethodHead) && !terminal
		if reads || r.URL.Path == api.UpgradePath || strings.HasPrefix(r.URL.Path, "/v1/actions/") {
			next.ServeHTTP(w, r)
			return
		}
		request := r.Method + " " + shorten.Text(r.URL.Path, maxRequestName)
		if !s.gate.enter(request) {
			s.fail(w, r, errUpgrading())
			return
		}
		if terminal {
			s.gate.leave(request)
		} else {
			defer s.gate.leave(request)
		}
		next.ServeHTTP(w, r)
	})
}
