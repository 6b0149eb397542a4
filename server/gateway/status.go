package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

// alive says that the process answers.
func (g *Gateway) alive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, api.Status{Status: "ok"})
}

// readyTime bounds the wait for the engine where somebody asks how it is.
const readyTime = 5 * time.Second

// readyz says whether the engine can be reached. It is open, so a second who
// asks gets what the first was told.
func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	waiting := ""
	if err := g.known.reachable(ctx); err != nil {
		waiting = "the Docker engine"
	}
	if g.stopping.Load() {
		waiting = "its end"
	}
	if waiting != "" {
		return writeJSON(w, http.StatusServiceUnavailable, api.Status{Status: "starting", WaitingFor: waiting})
	}
	return writeJSON(w, http.StatusOK, api.Status{Status: "ready"})
}

// openAPITag changes when the document does.
var openAPITag = fmt.Sprintf(`"%x"`, sha256.Sum256(api.GatewayOpenAPI))

// openAPI answers with the description of the gateway.
func (g *Gateway) openAPI(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Etag", openAPITag)
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == openAPITag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	writeBody(w, http.StatusOK, "application/yaml", api.GatewayOpenAPI)
	return nil
}
