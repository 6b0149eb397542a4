package egress_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
)

// secrets is an API server that has the Secrets of one namespace. A test says what it sends.
type secrets struct {
	t      *testing.T
	events chan string // the lines of a watch; "": it ends

	mu     sync.Mutex
	pages  map[string]string // by what continues
	asked  []url.Values
	status int
}

func (s *secrets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/agents-egress/secrets" || r.Header.Get("Authorization") != "Bearer account" || r.Method != http.MethodGet {
		s.t.Errorf("asked %s %s", r.Method, r.URL)
	}
	query := r.URL.Query()
	s.mu.Lock()
	s.asked = append(s.asked, query)
	status, page := s.status, s.pages[query.Get("continue")]
	s.mu.Unlock()
	switch {
	case status != 0:
		http.Error(w, "no", status)
	case query.Get("watch") == "":
		fmt.Fprint(w, page)
	default:
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-s.events:
				if line == "" {
					return
				}
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
				if strings.HasPrefix(line, `{"type":"ERROR"`) {
					return // as the API server's watches
				}
			case <-r.Context().Done():
				return
			}
		}
	}
}

// secretOf is a Secret as the API server writes it.
func secretOf(id, uid, conf string) string {
	return fmt.Sprintf(`{"kind":"Secret","metadata":{"name":"sandbox-%s","uid":"%s","managedFields":[{}]},"data":{"conf":"%s"},"type":"Opaque"}`,
		id, uid, base64.StdEncoding.EncodeToString([]byte(conf)))
}

func conf(generation int, mode, hash string) string {
	return fmt.Sprintf(`{"generation":%d,"policy":{"mode":%q},"token":%q}`, generation, mode, hash)
}

func event(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }

// TestFollow: the Secrets of a namespace are the policies of a proxy, at its start and later. What
// cannot be applied, or is gone, leaves its sandbox without a network.
func TestFollow(t *testing.T) {
	t.Parallel()
	api := &secrets{t: t, events: make(chan string)}
	srv := httptest.NewTLSServer(api)
	defer srv.Close()
	account := t.TempDir()
	for name, data := range map[string]string{
		"ca.crt":    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})),
		"namespace": "agents-egress\n", "token": "account\n",
	} {
		testhelp.WriteFile(t, filepath.Join(account, name), data, 0o600)
	}
	_, hash := egress.NewToken(id)
	_, otherHash := egress.NewToken(otherID)
	const brokenID, nextID = "cccccccccccc", "dddddddddddd"
	api.pages = map[string]string{
		"": `{"metadata":{"resourceVersion":"7","continue":"more"},"items":[` + secretOf(id, "u1", conf(5, "public", hash)) + `,{"metadata":{"name":"other"}}]}`,
		"more": `{"metadata":{"resourceVersion":"8"},"items":[` + secretOf(otherID, "u2", conf(1, "no-network", otherHash)) + "," +
			secretOf(brokenID, "u3", `{"generation":1,"policy":{"mode":"public","secrets":[{"name":"API","value":"hunter22hunter22","host":1}]}}`) + "]}",
	}
	var log testhelp.Buffer
	proxy := egress.New(egress.Config{Log: slog.New(slog.DiscardHandler)})
	defer proxy.Close()
	ctx, end := context.WithCancel(t.Context())
	synced, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		proxy.Follow(ctx, egress.Cluster{URL: srv.URL, Account: account, Log: slog.New(slog.NewTextHandler(&log, nil)), Synced: func() { close(synced) }})
	}()
	defer func() { end(); <-ended }()
	<-synced
	is := func(when, id string, generation int64) {
		t.Helper()
		testhelp.Eventually(t, func() bool {
			s, err := proxy.Status(id)
			if generation == 0 {
				return errors.Is(err, egress.ErrUnknown)
			}
			return err == nil && s.Generation == generation
		}, "%s", when)
	}
	is("the first page", id, 5)
	is("the second page", otherID, 1)
	is("a policy that cannot be read", brokenID, 0)
	if text := log.String(); !strings.Contains(text, brokenID) || strings.Contains(text, "hunter22") {
		t.Errorf("logged %s", text)
	}
	api.events <- event("BOOKMARK", `{"metadata":{"resourceVersion":"9"}}`)
	api.events <- event("MODIFIED", secretOf(id, "u1", conf(6, "no-network", hash)))
	is("a change", id, 6)
	api.events <- event("ADDED", secretOf(nextID, "u4", conf(1, "public", hash)))
	is("another", nextID, 1)
	api.events <- event("MODIFIED", secretOf(nextID, "u4", `{"generation":2,"policy":{"mode":"open"}}`))
	is("one that became unreadable", nextID, 0)
	api.events <- event("ADDED", secretOf(id, "u5", conf(1, "public", hash)))
	is("a later sandbox of the key", id, 1)
	api.events <- event("DELETED", secretOf(id, "u1", conf(6, "no-network", hash))) // late, of the earlier one
	api.events <- event("MODIFIED", secretOf(id, "u5", conf(2, "public", hash)))
	is("the later one still", id, 2)
	api.events <- event("DELETED", secretOf(otherID, "u2", conf(1, "no-network", otherHash)))
	is("one that was removed", otherID, 0)

	// A change that is missed while nothing is watched is found by the next list.
	api.mu.Lock()
	api.pages[""] = `{"metadata":{"resourceVersion":"12"},"items":[` + secretOf(otherID, "u6", conf(1, "public", otherHash)) + "]}"
	api.mu.Unlock()
	api.events <- event("ERROR", `{"code":410}`)
	is("one that is gone", id, 0)
	is("one that came", otherID, 1)
	// Without the API server the policies stay.
	api.events <- event("BOOKMARK", `{"metadata":{"resourceVersion":"13"}}`) // it watches again, and asks for nothing until that ends
	api.mu.Lock()
	api.status = http.StatusForbidden
	n := len(api.asked)
	api.mu.Unlock()
	api.events <- ""
	testhelp.Eventually(t, func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.asked) > n+1
	}, "it asks again")
	is("the same", otherID, 1)
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, q := range api.asked {
		if q.Get("labelSelector") != "actiond.dev/managed=policy" || q.Get("watch") == "" && q.Get("limit") == "" {
			t.Errorf("asked for %v", q)
		}
	}
	if api.asked[2].Get("resourceVersion") != "8" {
		t.Errorf("watched %v", api.asked[2])
	}
}
