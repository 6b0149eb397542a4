package browse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// repeated reads as n times the byte x.
type repeated struct{ n int }

func (r *repeated) Read(p []byte) (int, error) {
	n := min(r.n, len(p))
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = 'x'
	}
	r.n -= n
	return n, nil
}

// A page decides how long a message is: a page that logs 300 MB, for example.
func TestMessageOf300MB(t *testing.T) {
	in := bufio.NewReader(io.MultiReader(
		strings.NewReader(`{"id":7,"result":{"text":"`), &repeated{300 << 20}, strings.NewReader("\"}}\x00{\"id\":8}\x00"),
	))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	data, truncated, err := readMessage(in)
	runtime.ReadMemStats(&after)
	if err != nil || !truncated || len(data) > maxMessage+1 {
		t.Fatalf("got %d bytes, truncated %v, %v", len(data), truncated, err)
	}
	if grown := after.Sys - before.Sys; grown > 100<<20 {
		t.Errorf("reading it took %d bytes of memory", grown)
	}
	if m, ok := decodeMessage(data, truncated); !ok || m.ID != 7 || !m.truncated || !strings.HasPrefix(string(m.Result), `{"text":"xxx`) {
		t.Errorf("got reply %d, truncated %v, %v", m.ID, m.truncated, ok)
	}
	if data, truncated, err = readMessage(in); err != nil || truncated || string(data) != `{"id":8}` {
		t.Errorf("the next message: got %q, truncated %v, %v", data, truncated, err)
	}
}

// conversation answers commands by their method as a browser does.
func conversation(t *testing.T, replies map[string]string) *chromium {
	t.Helper()
	theirIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &chromium{pipe: newPipe(in, out, func(message) {})}
	c.reading.Go(c.read)
	c.reading.Go(func() {
		commands := bufio.NewReader(theirIn)
		for {
			data, err := commands.ReadBytes(0)
			if err != nil {
				return
			}
			var command struct {
				ID     int
				Method string
			}
			_ = json.Unmarshal(data[:len(data)-1], &command)
			id, _ := json.Marshal(command.ID)
			_, _ = theirOut.WriteString(`{"id":` + string(id) + `,` + replies[command.Method] + "}\x00")
		}
	})
	t.Cleanup(func() {
		_, _ = out.Close(), theirOut.Close()
		c.reading.Wait()
		_, _ = in.Close(), theirIn.Close()
	})
	return c
}

// Replies of other versions of Chromium, with members and values that the library
// does not know, or with half a surrogate pair, neither fail nor end the session.
func TestReplies(t *testing.T) {
	t.Parallel()
	c := conversation(t, map[string]string{
		browser.CommandGetVersion:          `"result":{"product":"\ud83d","unknown":{"a":1},"product":"Chrome/999"}`,
		page.CommandGetFrameTree:           `"result":{"frameTree":{"frame":{"id":"F","secureContextType":"NotYetInvented"}}}`,
		page.CommandNavigate:               `"error":{"code":-32000,"message":"Cannot navigate"}`,
		page.CommandGetNavigationHistory:   `"result":[]`,
		accessibility.CommandGetFullAXTree: `"result":{"nodes":[{"nodeId":"1","role":{"type":"invented","value":7}}]}`,
	})
	ctx := t.Context()
	if v, err := ask(ctx, c, browser.GetVersion, cdp.Empty{}); err != nil || v.Product != "Chrome/999" {
		t.Errorf("got %+v, %v", v, err)
	}
	if r, err := ask(ctx, c, page.GetFrameTree, cdp.Empty{}); err != nil || len(frames(r.FrameTree, nil)) != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := ask(ctx, c, page.Navigate, page.NavigateParams{URL: "x"}); !errors.As(err, new(*refusal)) || err.Error() != "Cannot navigate" {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := ask(ctx, c, page.GetNavigationHistory, cdp.Empty{}); err == nil || errors.As(err, new(*refusal)) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
	if _, err := ask(ctx, c, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}); err != nil {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errStepTime)
	if _, err := ask(ctx, c, browser.GetVersion, cdp.Empty{}); err != nil && !errors.Is(err, errStepTime) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for comb, want := range map[string]struct {
		key, code, text string
		number, held    int64
	}{
		"a":               {"a", "KeyA", "a", 65, 0},
		"A":               {"A", "KeyA", "A", 65, 0},
		"Shift+a":         {"A", "KeyA", "A", 65, 8},
		"Control+Shift+a": {"A", "KeyA", "A", 65, 10},
		"ControlOrMeta+c": {"c", "KeyC", "c", 67, 2},
		"KeyQ":            {"q", "KeyQ", "q", 81, 0},
		"Digit1":          {"1", "Digit1", "1", 49, 0},
		"Space":           {" ", "Space", " ", 32, 0},
		" ":               {" ", "Space", " ", 32, 0},
		"+":               {"+", "Equal", "+", 187, 0},
		"Control++":       {"+", "Equal", "+", 187, 2},
		"Enter":           {"Enter", "Enter", "\r", 13, 0},
		"Tab":             {"Tab", "Tab", "", 9, 0},
		"Delete":          {"Delete", "Delete", "", 46, 0},
		"ArrowDown":       {"ArrowDown", "ArrowDown", "", 40, 0},
		"F12":             {"F12", "F12", "", 123, 0},
		"Shift":           {"Shift", "ShiftLeft", "", 16, 0},
		"Meta":            {"Meta", "MetaLeft", "", 91, 0},
		"ß":               {"ß", "", "ß", 0, 0},
		"Ă":               {"Ă", "", "Ă", 0, 0}, // its number is that of a named key in the library
	} {
		k, held, err := parseKeys(comb)
		if err != nil {
			t.Errorf("%s: %v", comb, err)
			continue
		}
		if k.Key != want.key || k.Code != want.code || k.Text != want.text || k.Windows != want.number || held != want.held {
			t.Errorf("%s: got %+v, held %d; want %+v", comb, *k, held, want)
		}
	}
	for _, comb := range []string{"", "NoKey", "Hyper+a", "Control+", "ab"} {
		if _, _, err := parseKeys(comb); !errors.As(err, new(*failure)) {
			t.Errorf("%q: got %v, want a failure", comb, err)
		}
	}
}
