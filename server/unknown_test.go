package server_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/actiond/actiond/api/contract"
)

// A parameter and a member that no operation knows are refused by every operation under /v1/, and
// named: a misspelt one must not count as none.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	spec := contract.NewSpec(t)
	s := newServer(t, withRecorded)
	for _, route := range spec.Routes() {
		if !strings.HasPrefix(route.Path, "/v1/") {
			continue
		}
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			t.Parallel()
			path := strings.NewReplacer("{id}", "a", "{name}", "a", "{port}", "80").Replace(route.Path)
			for query, want := range map[string]string{"tiemout=3": `\"tiemout\" is unknown`, "wait=%zz": "invalid URL escape"} {
				w := request{method: route.Method, path: path + "?" + query}.send(s)
				if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
					t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
				}
				if err := spec.CheckResponse(route.Method, route.Path, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil && route.Method != http.MethodHead {
					t.Error(err)
				}
			}
		})
	}
	for _, e := range spec.Examples() {
		if e.Status != 0 || !strings.HasPrefix(e.Route.Path, "/v1/") || !bytes.HasPrefix(e.Body, []byte("{")) {
			continue
		}
		if e.Route.Path == "/v1/claim" { // it has its key: TestClaim sends this
			continue
		}
		t.Run("body of "+e.Route.Path+" "+e.Name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(string(e.Body), "{", `{"tiemout":3,`, 1)
			body = strings.Replace(body, ",}", "}", 1)
			w := post(strings.Replace(e.Route.Path, "{id}", "a", 1), body).send(s)
			if w.Code/100 != 4 || !strings.Contains(w.Body.String(), `\"tiemout\" is unknown`) {
				t.Errorf("%s: got %d %s", body, w.Code, w.Body)
			}
		})
	}
	for body, want := range map[string]string{
		`{"action":{"action":"run","args":{"command":"ls"},"tiemout":3}}`:                        `body.action: member \"tiemout\" is unknown; allowed are args, action`,
		`{"action":{"action":"run","args":{"command":"ls","tiemout":3}}}`:                        `\"tiemout\" is unknown`,
		`{"action":{"action":"run","args":{"command":5}}}`:                                       `body.action.args: action \"run\": argument \"command\" must be a string, got the number 5`,
		`{"action":{"action":"run","args":{"command":"ls"},"timeout":"5s"}}`:                     `body.action.args: action \"run\": \"timeout\" must be a finite number`,
		`{"action":{"action":"edit","args":{"path":"/a","command":"str_replace","old_str":{}}}}`: `old_str`,
	} {
		if w := post("/v1/actions", body).send(s); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %s", body, w.Code, w.Body, want)
		}
		if w := post("/execute_action", body).send(s); w.Code == http.StatusOK == strings.Contains(body, `ls","tiemout`) {
			t.Errorf("%s in the legacy protocol: got %d %s", body, w.Code, w.Body)
		}
	}
}
