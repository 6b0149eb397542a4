package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
)

// alive says that the process answers.
func (g *Gateway) alive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// readyTime bounds the wait for the engine when a client asks for its state.
const readyTime = 5 * time.Second

// readyz says whether the engine can be reached. It is open, so a second who
// asks gets what the first was told.
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
