package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// calls are all calls whose whole answer the client reads.
var calls = map[string]func(ctx context.Context, c *client.Client) error{
	"do": func(ctx context.Context, c *client.Client) error { _, err := c.Do(ctx, runAction); return err },
	"read": func(ctx context.Context, c *client.Client) error {
		_, err := c.Do(ctx, api.Request{Action: api.ReadAction{Path: "/x"}})
		return err
	},
	"alive":  func(ctx context.Context, c *client.Client) error { return c.Alive(ctx) },
	"ready":  func(ctx context.Context, c *client.Client) error { return c.Ready(ctx) },
	"info":   func(ctx context.Context, c *client.Client) error { _, err := c.ServerInfo(ctx); return err },
	"claim":  func(ctx context.Context, c *client.Client) error { return c.Claim(ctx, api.Claim{}) },
	"status": func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx); return err },
	"renew":  func(ctx context.Context, c *client.Client) error { _, err := c.Renew(ctx, time.Hour); return err },
	"tools":  func(ctx context.Context, c *client.Client) error { _, err := c.Tools(ctx, "", ""); return err },
	"call": func(ctx context.Context, c *client.Client) error {
		_, err := c.CallTool(ctx, api.ToolCall{})
		return err
	},
	"mcp": func(ctx context.Context, c *client.Client) error {
		return c.MCP(ctx, "", "", "", []byte("{}"), func(json.RawMessage) {})
	},
	"list":    func(ctx context.Context, c *client.Client) error { _, err := c.Sessions(ctx); return err },
	"session": func(ctx context.Context, c *client.Client) error { _, err := c.Session(ctx, "s"); return err },
	"close":   func(ctx context.Context, c *client.Client) error { return c.CloseSession(ctx, "s") },
	"files":   func(ctx context.Context, c *client.Client) error { _, err := c.ListFiles(ctx, "/"); return err },
	"upload": func(ctx context.Context, c *client.Client) error {
		_, err := c.Upload(ctx, "/d", "n", strings.NewReader("x"), false)
		return err
	},
	"stream": func(ctx context.Context, c *client.Client) error {
		_, err := c.Stream(ctx, runAction, ignore)
		return err
	},
}

var runAction = api.Request{Action: api.RunAction{Command: "x"}}

func ignore(api.Output) error { return nil }

// hostile gives each connection of a client, once a request has begun, to answer.
// It works without the network, so that time can be a bubble's.
func hostile(t *testing.T, answer func(conn net.Conn)) *client.Client {
	t.Helper()
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		group.Go(func() { // ends with the client's side
			defer far.Close()
			if _, err := far.Read(make([]byte, 1)); err != nil {
				return
			}
			group.Go(func() { _, _ = io.Copy(io.Discard, far) })
			answer(far)
		})
		return near, nil
	}}
	return newClient(t, client.Config{BaseURL: "http://sandbox", HTTPClient: &http.Client{Transport: transport}})
}

// drip writes text one byte at a time until the client has enough.
func drip(conn net.Conn, text string) {
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// TestDrip has servers that never end what they have begun.
func TestDrip(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ name, before, drip string }{
		{"status line", "", "HTTP/1.1 200 O"},
		{"header", "HTTP/1.1 200 OK\r\nX: ", "y"},
		{"informational", "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"},
		{"body", "HTTP/1.1 200 OK\r\n\r\n", " "},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"},
		{"refusal", "HTTP/1.1 500 No\r\n\r\n", " "},
	} {
		for name, call := range calls {
			t.Run(at.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := hostile(t, func(conn net.Conn) {
						if _, err := io.WriteString(conn, at.before); err == nil {
							drip(conn, at.drip)
						}
					})
					begun := time.Now()
					err := call(t.Context(), c)
					var status *client.StatusError
					if at.name == "refusal" && errors.As(err, &status) && status.Status == 500 {
						err = client.ErrTooSlow // without the detail, which did not come
					}
					limit := 20 * time.Second
					if at.name == "informational" {
						limit = 3 * time.Hour // the server says that it works on
					}
					if took := time.Since(begun); !errors.Is(err, client.ErrTooSlow) && !errors.Is(err, client.ErrNoAnswer) || took > limit {
						t.Errorf("got %v after %v, want ErrTooSlow", err, took)
					}
				})
			})
		}
	}
}

// An informational answer, as proxies send them, does not begin the answer.
func TestInformational(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := hostile(t, func(conn net.Conn) {
			for range 3 {
				_, _ = io.WriteString(conn, "HTTP/1.1 102 Processing\r\n\r\n")
				time.Sleep(time.Hour)
			}
			text := `{"observation": "null", "content": "", "extras": {}}`
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		})
		if _, err := c.Do(t.Context(), runAction); err != nil {
			t.Error(err)
		}
	})
}

// TestSilence bounds calls that need no work, and no others.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := hostile(t, func(conn net.Conn) { <-t.Context().Done() })
				want, limit := client.ErrNoAnswer, time.Minute
				ctx := t.Context()
				switch name {
				case "do", "read", "call", "mcp", "upload", "unpack", "stream": // these wait for what they ask for
					want, limit = context.DeadlineExceeded, 100*time.Hour
					patient, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					ctx = patient
				}
				begun := time.Now()
				if err := call(ctx, c); !errors.Is(err, want) || time.Since(begun) != limit {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(begun), want, limit)
				}
			})
		})
	}
}

// TestSlowActionIsNoDrip waits for an action, and in a stream for its next event,
// as long as it takes.
func TestSlowActionIsNoDrip(t *testing.T) {
	t.Parallel()
	const observation = `{"observation":"null","content":"done","extras":{}}`
	want := api.NullObservation{Content: "done"}
	synctest.Test(t, func(t *testing.T) {
		c := hostile(t, func(conn net.Conn) {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+observation)
		})
		if o, err := c.Do(t.Context(), runAction); err != nil || o != want {
			t.Errorf("do: got %+v, %v", o, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := hostile(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
			for range 5 * 60 * 2 {
				time.Sleep(30 * time.Second)
				_, _ = io.WriteString(conn, `{"event":"heartbeat"}`+"\n")
			}
			time.Sleep(30 * time.Second)
			_, _ = io.WriteString(conn, `{"event":"observation","observation":`+observation+"}\n")
		})
		if o, err := c.Stream(t.Context(), runAction, ignore); err != nil || o != want {
			t.Errorf("stream: got %+v, %v", o, err)
		}
	})
}

// TestSlowReaderIsNoDrip lets the caller of Stream take its time.
func TestSlowReaderIsNoDrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := hostile(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+
				strings.Repeat(`{"event":"output","offset":0,"text":"`+strings.Repeat("x", 50_000)+"\"}\n", 5)+
				`{"event":"observation","observation":{"observation":"null","content":"done","extras":{}}}`+"\n")
		})
		if _, err := c.Stream(t.Context(), runAction, func(api.Output) error { time.Sleep(time.Hour); return nil }); err != nil {
			t.Error(err)
		}
	})
}

// TestSteadyAnswer takes a large answer at the least rate.
func TestSteadyAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := hostile(t, func(conn net.Conn) {
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+`{"observation":"null","content":"`)
			for i := 0; i < 100 && err == nil; i++ {
				time.Sleep(time.Second)
				_, err = io.WriteString(conn, strings.Repeat("x", 40<<10))
			}
			_, _ = io.WriteString(conn, `","extras":{}}`)
		})
		if o, err := c.Do(t.Context(), runAction); err != nil || len(o.(api.NullObservation).Content) != 100*40<<10 {
			t.Errorf("got %v", err)
		}
	})
}

// TestEndless has servers whose answers do not end: each call takes as much
// memory as answers of its kind may need. It is not parallel, because it measures
// what the process allocates.
func TestEndless(t *testing.T) { //nolint:paralleltest // see above
	chunk := []byte(strings.Repeat(" ", 64<<10))
	most := map[string]uint64{ // MiB, with what growing a buffer costs
		"do": 600, "stream": 600, "files": 150, "info": 20, "list": 20, "tools": 40,
		"read": 0, "call": 0, "mcp": 0, // bounded by MaxResponse alone
	}
	for name, call := range calls {
		for _, status := range []string{"200 OK", "500 No"} {
			bound, known := most[name]
			switch {
			case status != "200 OK" || !known:
				bound = 10
			case bound == 0:
				continue
			}
			c := hostile(t, func(conn net.Conn) {
				_, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", status)
				for err == nil {
					_, err = conn.Write(chunk)
				}
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := call(t.Context(), c)
			runtime.ReadMemStats(&after)
			var refused *client.StatusError
			if !errors.Is(err, client.ErrTooLarge) && !errors.As(err, &refused) {
				t.Errorf("%s, %s: got %v, want ErrTooLarge", name, status, err)
			}
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > bound {
				t.Errorf("%s, %s: took %d MiB, want %d at most", name, status, mb, bound)
			}
		}
	}
}

// TestHugeHeader bounds headers too.
func TestHugeHeader(t *testing.T) {
	t.Parallel()
	c := hostile(t, func(conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
	})
	if err := c.Alive(t.Context()); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("got %v", err)
	}
}

// TestDetailIsOneLine has servers that write on the terminal of the caller.
func TestDetailIsOneLine(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		"plain, grün, 日本":                 "400 Bad Request: plain, grün, 日本",
		"a\nruntimectl: all is well\r\n":  `400 Bad Request: a\nruntimectl: all is well\r\n`,
		"\x1b[2J\x07\x7f":                 `400 Bad Request: \x1b[2J\a\x7f`,
		"\u009b2J \u202etxt\u2066 \u2028": `400 Bad Request: \u009b2J \u202etxt\u2066 \u2028`,
		"\xff\xc3\ufffd":                  `400 Bad Request: \xff\xc3` + "\ufffd",
		"":                                "400 Bad Request",
		strings.Repeat("x", 5000):         "400 Bad Request: " + strings.Repeat("x", 4096) + "...",
	} {
		if got := (&client.StatusError{Status: 400, Detail: detail}).Error(); got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", detail, got, want)
		}
	}
}
