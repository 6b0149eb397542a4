package notebook_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/notebook"
	"github.com/actiond/actiond/internal/testhelp"
)

// Text arrives while the cell runs: the cell goes on only after its first text was
// delivered.
func TestStream(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	seen := filepath.Join(t.TempDir(), "seen")
	var chunks []notebook.Chunk
	var text strings.Builder
	r, err := n.Stream(t.Context(), "", notebook.Cell{Code: "early " + seen, Timeout: patience}, func(c notebook.Chunk) {
		if err := os.WriteFile(seen, nil, 0o600); err != nil {
			t.Error(err)
		}
		text.Write(c.Data)
		c.Data = nil
		chunks = append(chunks, c)
	})
	if err != nil || r.Text != "early ok" || r.TimedOut {
		t.Errorf("got %+v, %v", r, err)
	}
	const first = "\x1b[31mearly\x1b[0m "
	if text.String() != first+"ok" || len(chunks) != 2 || chunks[0].Offset != 0 || chunks[1].Offset != int64(len(first)) || chunks[1].Missed != 0 {
		t.Errorf("got %q in %+v", text.String(), chunks)
	}
}

// A reader that is slow misses text and is told how much; a cell does not wait for
// it.
func TestStreamSlowReader(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	var next, missed, got int64
	r, err := n.Stream(t.Context(), "", notebook.Cell{Code: "huge", Timeout: patience}, func(c notebook.Chunk) {
		if c.Offset != next+c.Missed || len(c.Data) == 0 {
			t.Errorf("got a chunk of %d bytes at %d, %d missed, after %d", len(c.Data), c.Offset, c.Missed, next)
		}
		missed += c.Missed
		got += int64(len(c.Data))
		next = c.Offset + int64(len(c.Data))
	})
	if err != nil || !strings.HasSuffix(r.Text, "ok") || missed == 0 || got == 0 || got > 3<<20 {
		t.Errorf("got %d bytes and missed %d, %v", got, missed, err)
	}
}

// A caller that leaves gets no more text, and the cell ends all the same.
func TestStreamLeft(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	seen := filepath.Join(t.TempDir(), "seen")
	ctx, leave := context.WithCancel(t.Context())
	if _, err := n.Stream(ctx, "", notebook.Cell{Code: "early " + seen, Timeout: patience}, func(notebook.Chunk) { leave() }); err == nil {
		t.Error("no error after the caller left")
	}
	testhelp.WriteFile(t, seen, "", 0o600)
	if r := runIn(t, n, "", notebook.Cell{Code: "fine", Timeout: patience}); r.Text != "ok" {
		t.Errorf("the next cell: got %+v", r)
	}
}

// Chunks end between characters.
func TestStreamWholeCharacters(t *testing.T) {
	t.Parallel()
	n := fake(t, fakeKernel)
	var text strings.Builder
	_, err := n.Stream(t.Context(), "", notebook.Cell{Code: "wide", Timeout: patience}, func(c notebook.Chunk) {
		if !utf8.Valid(c.Data) {
			t.Errorf("a chunk of %d bytes is not UTF-8", len(c.Data))
		}
		text.Write(c.Data)
	})
	if want := strings.Repeat("日", 100_000) + "ok"; err != nil || text.String() != want {
		t.Errorf("got %d bytes, want %d; %v", text.Len(), len(want), err)
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"a\nb":                             "a\nb",
		"a\r\nb\r\n":                       "a\nb\n",
		"\x1b[38;2;1;2;3mRGB\x1b[0m\n":     "RGB\n",
		"\x1b[1mé\x1b[38:5:1m\x1b[?25l":    "é",
		"\rstep 0\rstep 1\rstep 2\n":       "step 2\n",
		"10%\r100%\rdone":                  "done",
		"100%\r9%":                         "9%0%",
		"100%\r\x1b[K9%\n":                 "9%\n",
		"100%\r\x1b[2Kok":                  "ok",
		"long\rab\ncd":                     "abng\ncd",
		"a \x1b]0;t":                       "a \x1b]0;t",
		"page 1\vpage 2\r\nx":              "page 1\npage 2\nx",
		"\x1b[Aup\x1b[1;1Hhome \x1b[2Jend": "uphome end",
	} {
		if got := notebook.Screen(text); got != want {
			t.Errorf("Screen(%q) = %q, want %q", text, got, want)
		}
	}
}
