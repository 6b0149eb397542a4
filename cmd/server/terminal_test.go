package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// attach attaches to a session of a server.
func attach(t *testing.T, c *client.Client, session string, readOnly bool) *client.Terminal {
	t.Helper()
	term, err := c.Terminal(t.Context(), session, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Close() })
	return term
}

// sees reads a terminal until it has shown these texts, one after the other.
func sees(t *testing.T, term io.ReadCloser, texts ...string) {
	t.Helper()
	limit := time.AfterFunc(time.Minute, func() { _ = term.Close() })
	defer limit.Stop()
	var seen strings.Builder
	buf := make([]byte, 4096)
	for rest := ""; len(texts) > 0; {
		if _, after, found := strings.Cut(rest, texts[0]); found {
			rest, texts = after, texts[1:]
			continue
		}
		n, err := term.Read(buf)
		seen.Write(buf[:n])
		rest += string(buf[:n])
		if err != nil {
			t.Fatalf("got %q and then %v, want %q", seen.String(), err, texts)
		}
	}
}

func types(t *testing.T, term io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(term, text); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	c, dir, _ := serveForTest(t)
	term := attach(t, c, "build", false)
	if err := term.Resize(30, 90); err != nil {
		t.Fatal(err)
	}
	sees(t, term, dir)
	types(t, term, "export FROM=person; stty size\r")
	sees(t, term, "\r\n30 90\r\n", dir) // and the prompt: until then the shell is busy

	looking := attach(t, c, "build", true)
	sees(t, looking, "stty size\r\n30 90\r\n")
	o, err := c.Do(t.Context(), api.Request{Session: "build", Action: api.RunAction{Command: "echo $FROM to agent"}})
	if err != nil {
		t.Fatal(err)
	}
	if run, ok := o.(api.RunObservation); !ok || run.Content != "person to agent" {
		t.Errorf("got %+v", o)
	}
	sees(t, looking, "echo $FROM to agent\r\nperson to agent\r\n")
	sees(t, term, "person to agent\r\n")

	types(t, term, "exit\r")
	if _, err := io.Copy(io.Discard, term); err != nil {
		t.Errorf("leaving: %v", err)
	}
	if s, err := c.Session(t.Context(), "build"); err != nil || s.State != "idle" {
		t.Errorf("got session %+v, %v", s, err)
	}
	if err := c.CloseSession(t.Context(), "build"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, looking); err != nil {
		t.Errorf("the session's end: %v", err)
	}
}

func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	c, _, url := serveForTest(t)
	wants := func(err error, status int) {
		t.Helper()
		var refused *client.StatusError
		if !errors.As(err, &refused) || refused.Status != status || refused.Detail == "" {
			t.Errorf("got %v, want status %d with a reason", err, status)
		}
	}
	_, err := c.Terminal(t.Context(), "no name", false)
	wants(err, http.StatusBadRequest)
	stranger, err := client.New(client.Config{BaseURL: url, Key: "guess"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stranger.Close)
	_, err = stranger.Terminal(t.Context(), "", false)
	wants(err, http.StatusForbidden)

	looking := attach(t, c, "", true)
	types(t, looking, "x")
	_, err = io.Copy(io.Discard, looking)
	wants(err, http.StatusBadRequest)
	shrinking := attach(t, c, "", false)
	if err := shrinking.Resize(0, -1); err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, shrinking)
	wants(err, http.StatusBadRequest)
}

// A hundred terminals that no client reads hold up nothing, not even the end.
func TestTerminalsUnread(t *testing.T) {
	t.Parallel()
	c, _, _ := serveForTest(t)
	var attaching sync.WaitGroup
	for range 100 {
		attaching.Go(func() {
			term, err := c.Terminal(t.Context(), "", false)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprint(term, "garbage")
		})
	}
	attaching.Wait()
	o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "head -c 3000000 /dev/zero | tr '\\0' x | fold; echo; echo end", Blocking: true}})
	if err != nil {
		t.Fatal(err)
	}
	if run, ok := o.(api.RunObservation); !ok || !strings.HasSuffix(run.Content, "\nend") || run.Metadata.ExitCode != 0 {
		t.Errorf("got %.200q", fmt.Sprint(o))
	}
}

// A stream through the whole program.
func TestStream(t *testing.T) {
	t.Parallel()
	c, _, _ := serveForTest(t)
	var got []byte
	o, err := c.Stream(t.Context(), api.Request{Session: "s", Action: api.RunAction{Command: `printf 'a\377\n'`}}, func(o api.Output) error {
		got = append(got, o.Data...)
		return nil
	})
	if run, ok := o.(api.RunObservation); err != nil || !ok || run.Metadata.ExitCode != 0 || string(got) != "a\xff\r\n" {
		t.Errorf("got %q, %+v, %v", got, o, err)
	}
}
