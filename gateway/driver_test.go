package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/sandbox"
)

// What a driver lacks is refused with a sentence that names it; the rest works.
func TestBareDriver(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(h *house, c *gateway.Config) { c.Driver = struct{ sandbox.Driver }{h.host} })
	w := h.ask(t, http.MethodPost, "/v1/sandboxes", "/v1/sandboxes", `{"image": "debian"}`, "Idempotency-Key", "bare")
	if w.Code != http.StatusCreated {
		t.Fatalf("create: %d, %s", w.Code, w.Body)
	}
	id := sandbox.ID("gateway key bare")
	for call, what := range map[string]string{"pause": "pause", "resume": "resume", "stop": "stop", "start": "start"} {
		route := "/v1/sandboxes/{id}/" + call
		w := h.ask(t, http.MethodPost, route, strings.Replace(route, "{id}", id, 1), "")
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the Docker engine cannot "+what+" sandboxes") {
			t.Errorf("%s: %d, %s", call, w.Code, w.Body)
		}
	}
	w = h.ask(t, http.MethodDelete, "/v1/sandboxes/{id}", "/v1/sandboxes/"+id, "")
	if w.Code != http.StatusNoContent {
		t.Errorf("delete: %d, %s", w.Code, w.Body)
	}
}
