package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// alive answers as long as the process runs.
func (g *Gateway) alive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// readyTime bounds the wait for the engine when a client asks for its state.
const readyTime = 5 * time.Second

// readyz reports whether the engine can be reached. The route is open, so the result is
// cached for holdOff.
func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	waiting := ""
	if err := g.known.reachable(ctx); err != nil {
		waiting = g.cfg.Driver.Platform()
	}
	if g.stopping.Load() {
		waiting = "its end"
	}
	if waiting != "" {
		return writeJSON(w, http.StatusServiceUnavailable, api.Status{Status: "starting", WaitingFor: waiting})
	}
	return writeJSON(w, http.StatusOK, api.Status{Status: "ready"})
}
