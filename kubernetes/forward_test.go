package kubernetes_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/actiond/actiond/kubernetes"
)

// echoing forwards a port by SPDY, as API servers did before 1.31, to a program that sends back what it gets.
func echoing(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	for range cap(streams) {
		s := <-streams
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
			_, _ = io.Copy(s, s)
		}
		_ = s.Close()
	}
}

// WebSockets that are refused, by a proxy, by an API server that does not know them, or for
// want of the right to get, are no reason not to forward a port.
func TestForwardWithoutWebSockets(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]http.HandlerFunc{
		"proxy": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no WebSockets here", http.StatusBadRequest)
		},
		"rights": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "cannot get resource"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 3)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.Method + " " + r.URL.Path
				if r.Method == http.MethodGet {
					refuse(w, r)
					return
				}
				echoing(w, r)
			}))
			defer server.Close()
			conn, err := kubernetes.Forward(t.Context(), &rest.Config{Host: server.URL}, "p")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answer := make([]byte, 5)
			if _, err := io.WriteString(conn, "hello"); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
				t.Errorf("got %q, %v", answer, err)
			}
			const path = " /api/v1/namespaces/agents/pods/p/portforward"
			if first, second := <-asked, <-asked; first != "GET"+path || second != "POST"+path {
				t.Errorf("asked %q and %q", first, second)
			}
		})
	}
}
