package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// A browser is shown a page of links, with and without a key, and every other
// client is answered as before.
func TestHome(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, tt := range []struct {
		name, method, accept string
		keyed                bool
		status               int
	}{
		{"browser", "GET", browser, false, 200},
		{"browser without the key", "GET", browser, true, 200},
		{"curl", "GET", "*/*", false, 404},
		{"curl without the key", "GET", "*/*", true, 403},
		{"no HTML", "GET", "text/html;q=0, */*", true, 403},
		{"another method", "POST", browser, false, 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			if tt.keyed {
				s = newServer(t, withKey)
			}
			w := request{method: tt.method, path: "/", header: map[string]string{"Accept": tt.accept}}.send(s)
			if w.Code != tt.status {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if w.Code != http.StatusOK {
				return
			}
			body := w.Body.String()
			if !strings.Contains(body, `<a href="server_info">`) || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'") ||
				w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("got %v\n%s", w.Header(), body)
			}
			for part := range strings.SplitSeq(body, `<a href="`) {
				link, _, isLink := strings.Cut(part, `">`)
				if strings.HasPrefix(part, "<!") || !isLink {
					continue
				}
				if got := get("/" + link).send(newServer(t)).Code; got == http.StatusNotFound {
					t.Errorf("the link %q leads to %d", link, got)
				}
			}
		})
	}
}
