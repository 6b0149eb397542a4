package gateway_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// A parameter and a member that no operation knows are refused by every operation under /v1/, and
// named.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, route := range h.spec.Routes() {
		if !strings.HasPrefix(route.Path, "/v1/") {
			continue
		}
		path := strings.NewReplacer("{id}", "a", "{port}", "80").Replace(route.Path)
		want(t, h.ask(t, route.Method, route.Path, path+"?tiemout=3", ""), http.StatusBadRequest, `\"tiemout\" is unknown`)
	}
	for _, e := range h.spec.Examples() {
		if e.Status != 0 || !strings.HasPrefix(e.Route.Path, "/v1/") || !bytes.HasPrefix(e.Body, []byte("{")) {
			continue
		}
		path := strings.NewReplacer("{id}", "a", "{port}", "80").Replace(e.Route.Path)
		body := strings.Replace(string(e.Body), "{", `{"tiemout":3,`, 1)
		want(t, h.ask(t, e.Route.Method, e.Route.Path, path, body), http.StatusBadRequest, `\"tiemout\" is unknown`)
	}
}
