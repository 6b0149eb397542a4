package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// Lines of an output are found from its end and by an expression, of all or of one stream,
// and what is not kept of it is told to the byte.
func TestOutputSearch(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	line := func(n int) string { return fmt.Sprintf("line %08d %s\n", n, strings.Repeat("x", 85)) } // of 100 bytes
	h := newServer(t, func(cfg *server.Config) {
		var err error
		if cfg.Journal, err = journal.Open(journal.Config{Dir: t.TempDir(), MaxOutput: 2 * size}); err != nil {
			t.Fatal(err)
		}
		begin := func(id string) *journal.Action {
			a, _, err := cfg.Journal.Reserve(journal.Intent{ID: id, Kind: "exec"})
			if err == nil {
				err = a.Begin()
			}
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		small := begin("small")
		for i, text := range []string{"one\ntw", "o\nthree\r\nfour\nfi", "ve\nsix\nseven"} {
			small.Output(journal.Stdout, []byte(text))
			small.Output(journal.Stderr, fmt.Appendf(nil, "e%d\n", i))
		}
		large := begin("large")
		for i := range 100_000 {
			large.Output(journal.Stdout, []byte(line(i)))
		}
		long := begin("long")
		long.Output(journal.Stdout, []byte(strings.Repeat("a", 40<<10)+"needle"+strings.Repeat("b", 40<<10)+"\nend\n"))
	})
	find := func(id, query string) (status int, offset int64, text string) {
		w := get("/v1/actions/" + id + "/output?" + query).send(h)
		offset, _ = strconv.ParseInt(w.Header().Get(api.OutputOffsetHeader), 10, 64)
		return w.Code, offset, w.Body.String()
	}
	for _, test := range []struct {
		query  string
		offset int64
		want   string
	}{
		{"stream=stdout&tail=1", 29, "seven"},
		{"stream=stdout&tail=2", 25, "six\nseven"},
		{"stream=stdout&tail=100", 0, "one\ntwo\nthree\r\nfour\nfive\nsix\nseven"},
		{"stream=stdout&tail=0", 34, ""},
		{"stream=stdout&tail=2&limit=4", 25, "six\n"},
		{"stream=stdout&tail=2&offset=29", 29, "seven"},
		{"stream=stderr&tail=2", 3, "e1\ne2\n"},
		{"stream=stdout&grep=" + url.QueryEscape("^t.*e$"), 0, "three\r\n"},
		{"stream=stdout&grep=seven", 0, "seven\n"},
		{"stream=stdout&grep=e&tail=3", 20, "five\nseven\n"},
		{"stream=stdout&grep=" + url.QueryEscape("one|five") + "&context=1", 0, "one\ntwo\n--\nfour\nfive\nsix\n"},
		{"stream=stdout&grep=" + url.QueryEscape("one|four") + "&context=1", 0, "one\ntwo\nthree\r\nfour\nfive\n"},
		{"stream=stdout&grep=" + url.QueryEscape("two|four") + "&context=2", 0, "one\ntwo\nthree\r\nfour\nfive\nsix\n"},
		{"stream=stdout&grep=" + url.QueryEscape("."), 0, "one\ntwo\nthree\r\nfour\nfive\nsix\nseven\n"},
		{"stream=stdout&grep=o&limit=9", 0, "one\ntwo\n[... the search stopped: go on with offset=15 ...]\n"},
		{"stream=stdout&grep=o&offset=15", 15, "four\n"},
		{"stream=stdout&grep=nothing", 0, ""},
	} {
		if status, offset, text := find("small", test.query); status != http.StatusOK || offset != test.offset || text != test.want {
			t.Errorf("%s: got %d, at %d: %q", test.query, status, offset, text)
		}
	}
	for _, query := range []string{"tail=x", "tail=-1", "grep=" + url.QueryEscape("("), "grep=" + strings.Repeat("a", 5000), "grep=" + url.QueryEscape("(x{100}){100}"), "grep=" + url.QueryEscape(strings.Repeat("(a?){1000}", 370)), "grep=a&context=51"} {
		if status, _, text := find("small", query); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d, %s", query, status, text)
		}
	}

	// Of an output that is too long, the head and the tail are kept.
	status, _, text := find("large", "stream=stdout&grep="+url.QueryEscape("line 000(00000|99999) "))
	first, rest, _ := strings.Cut(text, "[... ")
	missing, last, _ := strings.Cut(rest, " bytes are not kept ...]\n")
	if n, err := strconv.Atoi(missing); status != http.StatusOK || first != line(0) || last != line(99_999) || err != nil || n < 7*size || n > 9*size {
		t.Errorf("got %d, %q", status, text)
	}
	_, whole, _ := find("large", "offset=5000000")
	if _, offset, text := find("large", "tail=1000000"); offset != whole || !strings.HasSuffix(text, line(99_999)) || int64(len(text)) != 10_000_000-offset {
		t.Errorf("the tail begins at %d with %d bytes, what is kept at %d", offset, len(text), whole)
	}
	if _, offset, text := find("large", "tail=3"); offset != 9_999_700 || text != line(99_997)+line(99_998)+line(99_999) {
		t.Errorf("got %d, %q", offset, text)
	}
	// A long line is matched in parts.
	if _, _, text := find("long", "grep=needle"); len(text) != 32<<10+1 || !strings.Contains(text, "aneedleb") {
		t.Errorf("got %d bytes", len(text))
	}
}

// An observation of /v1/actions that is not all of the output says where all of it is. On
// /execute_action it has the text of the protocol.
func TestShortenedSaysWhere(t *testing.T) {
	t.Parallel()
	h := fileServer(t)
	for kind, want := range map[string]string{"run": "\r\n20000\r\n", "exec": "\n20000\n"} {
		post := func(path, command string) string {
			body := fmt.Sprintf(`{"id": "%s?1", "action": {"action": %q, "args": {"command": %q}}}`, kind, kind, command)
			return request{method: "POST", path: path, contentType: "application/json", body: body}.send(h).Body.String()
		}
		where := "/v1/actions/" + kind + "%3F1/output"
		if got := post("/execute_action", "seq 1 20000"); strings.Contains(got, where) {
			t.Errorf("%s of the legacy protocol: %.300s", kind, got[max(0, len(got)-300):])
		}
		if got := post("/v1/actions", "seq 1 20000"); !strings.Contains(got, "not all of the output. GET "+where+" reads") {
			t.Errorf("%s: %s", kind, got[max(0, len(got)-600):])
		}
		if got := (request{method: "GET", path: where}).send(h).Body.String(); !strings.HasPrefix(got, "1") || !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 20000 {
			t.Errorf("%s: the output has %d lines: %.50q", kind, strings.Count(got, "\n"), got)
		}
	}
	short := `{"id": "short", "action": {"action": "run", "args": {"command": "seq 1 5"}}}`
	if got := (request{method: "POST", path: "/v1/actions", contentType: "application/json", body: short}).send(h).Body.String(); strings.Contains(got, "/output") {
		t.Errorf("a short output: %s", got)
	}
}

// A Range header works on what an action printed as on a file, between the bytes that are
// not kept.
func TestOutputRange(t *testing.T) {
	t.Parallel()
	h := newServer(t, func(cfg *server.Config) {
		var err error
		if cfg.Journal, err = journal.Open(journal.Config{Dir: t.TempDir(), MaxOutput: 2 << 20}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"small", "large"} {
			a, _, err := cfg.Journal.Reserve(journal.Intent{ID: id, Kind: "exec"})
			if err == nil {
				err = a.Begin()
			}
			if err != nil {
				t.Fatal(err)
			}
			if id == "small" {
				a.Output(journal.Stdout, []byte("0123456789"))
				a.Output(journal.Stderr, []byte("abc"))
			}
			for i := 0; id == "large" && i < 100_000; i++ {
				a.Output(journal.Stdout, fmt.Appendf(nil, "%099d\n", i))
			}
		}
	})
	ask := func(path, asked string) *httptest.ResponseRecorder {
		return request{method: "GET", path: "/v1/actions/" + path, header: map[string]string{"Range": asked}}.send(h)
	}
	for _, tt := range []struct {
		path, asked string
		status      int
		content     string // of Content-Range
		body        string
	}{
		{"small/output", "bytes=2-4", 206, "bytes 2-4/13", "234"},
		{"small/output", "bytes=8-", 206, "bytes 8-12/13", "89abc"},
		{"small/output", "bytes=-2", 206, "bytes 11-12/13", "bc"},
		{"small/output", "bytes=-99", 206, "bytes 0-12/13", "0123456789abc"},
		{"small/output", "bytes=9-99", 206, "bytes 9-12/13", "9abc"},
		{"small/output", "bytes=0-9223372036854775807", 206, "bytes 0-12/13", "0123456789abc"},
		{"small/output?stream=stderr", "bytes=1-1", 206, "bytes 1-1/3", "b"},
		{"small/output", "bytes=13-", 416, "bytes */13", ""},
		{"small/output", "bytes=-0", 416, "bytes */13", ""},
		{"small/output", "bytes=5-4", 200, "", "0123456789abc"},
		{"small/output", "bytes=0-1,3-4", 200, "", "0123456789abc"},
		{"small/output", "bytes=a-", 200, "", "0123456789abc"},
		{"small/output", "bytes=-9223372036854775808", 200, "", "0123456789abc"},
		{"small/output", "lines=1-2", 200, "", "0123456789abc"},
		{"small/output?offset=10", "bytes=0-1", 200, "", "abc"},
		{"large/output", "bytes=5000000-5000000", 416, "bytes */10000000", ""}, // of the middle, which is not kept
		{"large/output", "bytes=-100", 206, "bytes 9999900-9999999/10000000", fmt.Sprintf("%099d\n", 99_999)},
	} {
		w := ask(tt.path, tt.asked)
		if w.Code != tt.status || w.Header().Get("Content-Range") != tt.content || tt.status != 416 && w.Body.String() != tt.body {
			t.Errorf("%s of %s: got %d %q %q, want %+v", tt.asked, tt.path, w.Code, w.Header().Get("Content-Range"), w.Body, tt)
		}
	}
	// A range over the gap ends before it, and says so.
	w := ask("large/output", "bytes=0-9999999")
	var last int
	if _, err := fmt.Sscanf(w.Header().Get("Content-Range"), "bytes 0-%d/10000000", &last); err != nil || w.Code != 206 || w.Body.Len() != last+1 || last > 2<<20 {
		t.Errorf("over the gap: %d %q with %d bytes", w.Code, w.Header().Get("Content-Range"), w.Body.Len())
	}
}
