package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// A client with the key of a sandbox that ended learns why; others learn nothing, and OpenHands' clients
// what they always did.
func TestEnds(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	other := h.make(t, `{"image":"debian"}`)
	const renew = "/v1/sandboxes/{id}/renew"
	remove := func(s api.Sandbox) {
		want(t, h.ask(t, "DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/"+s.ID, ""), 204, "")
	}
	prune := func(s api.Sandbox) {
		if removed, err := h.host.Prune(t.Context(), false); err != nil || len(removed) != 1 || removed[0].ID != s.ID {
			t.Errorf("pruned %v, %v", removed, err)
		}
		h.Changed(s.ID)
	}
	for _, tt := range []struct {
		name string
		end  func(s api.Sandbox)
		want string
	}{
		{"the gateway removes it", remove, `"code":"ended","reason":"removed"`},
		{"another process removes it", func(s api.Sandbox) {
			if err := h.host.Delete(t.Context(), find(t, h, s.ID)); err != nil {
				t.Fatal(err)
			}
			h.Changed(s.ID)
		}, `"code":"ended","reason":"removed"`},
		{"its time is up", func(s api.Sandbox) {
			if err := h.host.Renew(t.Context(), find(t, h, s.ID), time.Now()); err != nil {
				t.Fatal(err)
			}
			h.Changed(s.ID)
			h.engine.Kill(h.container(s.ID), false)
			h.through(t, s.ID, "GET", "/v1/x") // by its last connection
			want(t, h.through(t, s.ID, "GET", "/v1/x"), http.StatusGone, `"code":"ended","reason":"deadline"`)
			prune(s)
		}, `"code":"ended","reason":"deadline"`},
	} {
		t.Log(tt.name)
		s := h.make(t, `{"image":"debian","name":"box"}`)
		at := "/sandboxes/" + s.ID
		want(t, h.through(t, s.ID, "GET", "/v1/x", api.GatewayKeyHeader, "", api.KeyHeader, s.SessionKey), 200, "")
		tt.end(s)
		want(t, h.ask(t, "GET", "/v1/sandboxes/{id}", "/v1/sandboxes/"+s.ID, ""), http.StatusGone, tt.want)
		want(t, h.request(t, "GET", "/v1/sandboxes/"+s.ID, "", s.SessionKey), http.StatusGone, tt.want)
		want(t, h.request(t, "GET", "/v1/sandboxes/"+s.ID, "", other.SessionKey), 403, "Invalid API Key")
		want(t, h.ask(t, "POST", renew, "/v1/sandboxes/box/renew", `{"ttl_seconds":60}`), http.StatusGone, tt.want)
		for _, path := range []string{at + "/v1/x", "/sandboxes/box/v1/x", at + "/ports/80/", at + "/mcp"} {
			for name, c := range map[string]struct {
				operator, session string
				status            int
			}{
				"its own": {"", s.SessionKey, 410}, "both": {theKey, s.SessionKey, 410}, "the gateway's": {theKey, "", 410},
				"another one": {"", other.SessionKey, 403}, "the gateway's and another one": {theKey, other.SessionKey, 404}, "none": {"", "", 403},
			} {
				r := h.request(t, "GET", path, c.operator, c.session)
				if r.Code != c.status || strings.Contains(r.Body.String(), tt.want) != (c.status == 410) {
					t.Errorf("%s with %s: got %d %s, want %d", path, name, r.Code, r.Body, c.status)
				}
			}
		}
		want(t, h.request(t, "POST", at+"/execute_action", theKey, s.SessionKey), 404, `{"detail":"\"`+s.ID+`\": no such sandbox"}`)
		want(t, h.request(t, "POST", at+"/execute_action", "", s.SessionKey), 403, `{"detail":"Invalid API Key"}`)
		want(t, h.ask(t, "GET", "/runtime/{runtime_id}", "/runtime/"+s.ID, ""), 200, `"not found"`)
	}
}

// A sandbox whose server ended says so, and why, until it is started again.
func TestStoppedReasons(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.listen(t) // it watches the engine
	for _, tt := range []struct {
		name, spec string
		end        func(s api.Sandbox)
		reason     string
	}{
		{"killed", "", func(s api.Sandbox) { h.engine.Kill(h.container(s.ID), false) }, sandbox.EndKilled},
		{"out of memory", "", func(s api.Sandbox) { h.engine.Kill(h.container(s.ID), true) }, sandbox.EndMemory},
		{"idle", `,"idle_limit_seconds":60`, func(s api.Sandbox) { h.engine.End(h.container(s.ID), 0) }, sandbox.EndIdle},
		{"crashed", `,"idle_limit_seconds":60`, func(s api.Sandbox) { h.engine.End(h.container(s.ID), 2) }, sandbox.EndFailed},
		{"stopped", `,"idle_limit_seconds":60`, func(s api.Sandbox) {
			if err := h.host.Stop(t.Context(), find(t, h, s.ID), time.Second); err != nil {
				t.Error(err)
			}
		}, sandbox.EndStopped},
	} {
		t.Log(tt.name)
		s := h.make(t, `{"image":"debian"`+tt.spec+`}`)
		tt.end(s)
		body := `"code":"stopped","reason":"` + tt.reason + `"`
		testhelp.Eventually(t, func() bool {
			w := h.request(t, "GET", "/sandboxes/"+s.ID+"/v1/x", "", s.SessionKey)
			return w.Code == 503 && strings.Contains(w.Body.String(), body)
		}, "%s", body)
		want(t, h.request(t, "GET", "/sandboxes/"+s.ID+"/x", "", s.SessionKey), 503, `{"detail":"Sandbox `+s.ID+` is stopped; start it"}`)
		want(t, h.ask(t, "POST", "/v1/sandboxes/{id}/start", "/v1/sandboxes/"+s.ID+"/start", ""), 200, "")
		testhelp.Eventually(t, func() bool { return h.request(t, "GET", "/sandboxes/"+s.ID+"/v1/x", "", s.SessionKey).Code == 200 }, "it is back")
	}
}

// A sandbox that was restarted without its driver does not look like one with another key.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.UnclaimedHeader, "1")
		w.WriteHeader(http.StatusForbidden)
	}
	s := h.make(t, `{"image":"debian"}`)
	want(t, h.request(t, "GET", "/sandboxes/"+s.ID+"/v1/x", "", s.SessionKey), 503, `"code":"unclaimed"}`)
	want(t, h.request(t, "GET", "/sandboxes/"+s.ID+"/x", "", s.SessionKey), 503, "'runtimectl start "+s.ID+`'"}`)
}

// Every refusal under /v1/ has a word for programs.
func TestCodes(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s := h.make(t, `{"image":"debian"}`)
	want(t, h.ask(t, "POST", "/v1/sandboxes/{id}/pause", "/v1/sandboxes/"+s.ID+"/pause", ""), 200, "")
	want(t, h.through(t, s.ID, "GET", "/v1/x"), 503, `"errors":[],"code":"paused"}`)
	want(t, h.through(t, s.ID, "GET", "/ports/80/x"), 503, `"code":"paused"}`)
	want(t, h.through(t, s.ID, "GET", "/x"), 503, `is paused; resume it"}`)
	want(t, h.ask(t, "GET", "/v1/sandboxes/{id}", "/v1/sandboxes/x", ""), 404, `"code":"not_found"}`)
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"none"}`), 422, `"code":"unprocessable_entity"}`)
	want(t, h.request(t, "GET", "/v1/sandboxes", "", ""), 403, `"code":"forbidden"}`)
	h.engine.SetDown(true)
	want(t, h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes", ""), 503, `"code":"unreachable"}`)
	h.engine.SetDown(false)
	h.Close()
	want(t, h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"debian"}`), 503, `"code":"stopping"}`)
}

// A renewal at the sandbox's own path changes the driver's record, for a session key within the operator's limit.
func TestRenewThroughProxy(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.Defaults.TTL = time.Hour })
	h.answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, r.URL.Path, r.ContentLength) }
	s := h.make(t, `{"image":"debian","ttl_seconds":60}`)
	for _, tt := range []struct {
		name, operator, path, body string
		status                     int
		text                       string
		ttl                        time.Duration // afterwards
	}{
		{"within the limit", "", "/v1/renew", `{"ttl_seconds":3600}`, 200, "GET/v1/status0", time.Hour},
		{"another spelling", "", "/v1/%72enew/", `{"ttl_seconds":1800}`, 200, "GET/v1/status0", 30 * time.Minute},
		{"beyond the limit", "", "/v1/renew", `{"ttl_seconds":3601}`, 403, "at most 3600 seconds", 30 * time.Minute},
		{"no end", "", "/v1/renew", `{"ttl_seconds":0}`, 403, "at most 3600 seconds", 30 * time.Minute},
		{"a query", "", "/v1/renew?x=1", `{"ttl_seconds":60}`, 400, "parameter \\\"x\\\" is unknown", 30 * time.Minute},
		{"a wrong body", "", "/v1/renew", `{"ttl":1}`, 400, "ttl", 30 * time.Minute},
		{"the operator beyond it", theKey, "/v1/renew", `{"ttl_seconds":7200}`, 200, "GET/v1/status0", 2 * time.Hour},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/sandboxes/"+s.ID+tt.path, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(api.KeyHeader, s.SessionKey)
		if tt.operator != "" {
			r.Header.Set(api.GatewayKeyHeader, tt.operator)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want(t, w, tt.status, tt.text)
		if left := time.Until(find(t, h, s.ID).Deadline).Round(10 * time.Minute); left != tt.ttl {
			t.Errorf("%s: it ends in %v, want %v", tt.name, left, tt.ttl)
		}
	}
}

// The memory for ends is bounded: the eldest goes first.
func TestManyEnds(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := func(i int) string { return fmt.Sprintf("%012x", i) }
	for i := range gateway.MaxEnds + 1 {
		h.Forget(&sandbox.Sandbox{ID: id(i), Access: keyed{}})
	}
	for i, status := range map[int]int{0: 403, 1: 410, gateway.MaxEnds: 410} {
		want(t, h.request(t, "GET", "/sandboxes/"+id(i)+"/v1/x", "", "its key"), status, "")
	}
}

// keyed is the access to a sandbox that has a key.
type keyed struct{ sandbox.Access }

func (keyed) Key() (string, error) { return "its key", nil }
