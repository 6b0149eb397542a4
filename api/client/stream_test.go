package client_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

func TestStream(t *testing.T) {
	t.Parallel()
	const observation = `{"event":"observation","observation":{"observation":"null","content":"done","extras":{}}}` + "\n"
	stop := errors.New("stop")
	for _, tt := range []struct {
		name, body string
		status     int
		want       string // what output got
		check      func(o api.Observation, err error) bool
	}{
		{
			"all", `{"event":"output","offset":0,"text":"a"}` + "\n" + `{"event":"heartbeat"}` + "\n" + `{"event":"output","offset":1,"base64":"/w=="}` + "\n" + observation, 200, "a\xff",
			func(o api.Observation, err error) bool {
				return err == nil && o == api.NullObservation{Content: "done"}
			},
		},
		{
			"long", `{"event":"output","offset":0,"text":"` + strings.Repeat("x", 200_000) + `"}` + "\n" + observation, 200, strings.Repeat("x", 200_000),
			func(_ api.Observation, err error) bool { return err == nil },
		},
		{
			"refused late", `{"event":"error","status":429,"detail":"later"}` + "\n", 200, "",
			func(_ api.Observation, err error) bool {
				var status *client.StatusError
				return errors.As(err, &status) && *status == client.StatusError{Status: 429, Detail: "later"}
			},
		},
		{
			"refused", `{"detail":"later"}`, 429, "",
			func(_ api.Observation, err error) bool {
				var status *client.StatusError
				return errors.As(err, &status) && *status == client.StatusError{Status: 429, Detail: "later"}
			},
		},
		{
			"cut", `{"event":"output","offset":0,"text":"a"}` + "\n" + observation[:20], 200, "a",
			func(_ api.Observation, err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) },
		},
		{"nonsense", "<html>\n", 200, "", func(_ api.Observation, err error) bool { return err != nil }},
		{
			"stopped", `{"event":"output","offset":0,"text":"stop"}` + "\n" + observation, 200, "stop",
			func(_ api.Observation, err error) bool { return errors.Is(err, stop) },
		},
		{"endless", strings.Repeat("x", 2<<20), 200, "", func(_ api.Observation, err error) bool { return errors.Is(err, client.ErrTooLarge) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet { // an older server, which has no list
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				if r.Method != http.MethodPost || r.URL.Path != "/v1/actions" || r.Header.Get("Accept") != "application/x-ndjson" {
					t.Errorf("got %s %s, Accept %q", r.Method, r.URL.Path, r.Header.Get("Accept"))
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body) // the client may have had enough
			}))
			t.Cleanup(h.Close)
			var got strings.Builder
			o, err := newClient(t, client.Config{BaseURL: h.URL, MaxResponse: 1 << 20}).Stream(t.Context(), api.Request{Action: api.RunAction{Command: "x"}}, func(o api.Output) error {
				got.Write(o.Data)
				if string(o.Data) == "stop" {
					return stop
				}
				return nil
			})
			if !tt.check(o, err) || got.String() != tt.want {
				t.Errorf("got %v, %v after %.40q (%d bytes), want output %.40q", o, err, got.String(), got.Len(), tt.want)
			}
		})
	}
}

// A stream that falls silent is asked for again behind its last event: the connection may have
// broken without a word.
func TestStreamFallsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := hostile(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
			switch asked++; asked {
			case 1:
				_, _ = io.WriteString(conn, `{"event":"output","seq":1,"offset":0,"text":"a"}`+"\n")
				time.Sleep(24 * time.Hour)
			case 2: // whether it knows ids
				_, _ = io.WriteString(conn, `{"actions":[],"next":0}`)
			default:
				_, _ = io.WriteString(conn, `{"event":"output","seq":2,"offset":1,"text":"b"}`+"\n"+`{"event":"observation","seq":3,"observation":{"observation":"null","content":"done","extras":{}}}`+"\n")
			}
		})
		got := ""
		o, err := c.Stream(t.Context(), api.Request{Key: "k", Action: api.RunAction{Command: "x"}}, func(o api.Output) error {
			got += string(o.Data)
			return nil
		})
		if want := (api.NullObservation{Content: "done"}); err != nil || o != want || got != "ab" {
			t.Errorf("got %+v, %q, %v", o, got, err)
		}
		if asked != 3 {
			t.Errorf("it asked %d times", asked)
		}
	})
}
