package llm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/llm"
)

// fake answers with the given texts, one a call, and keeps what it was sent.
func fake(t *testing.T, answers ...string) (*httptest.Server, *[]string) {
	t.Helper()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		answer, _ := json.Marshal(answers[min(len(sent), len(answers))-1])
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%s}}]}`, answer)
	}))
	t.Cleanup(server.Close)
	return server, &sent
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answers []string
		want    string
		calls   int
		fails   string
	}{
		{name: "at once", answers: []string{"Sure:\n<updated_code>\na\n\nb\n</updated_code> done"}, want: "a\n\nb\n", calls: 1},
		{name: "on the same line", answers: []string{"<updated_code>a</updated_code>"}, want: "a", calls: 1},
		{name: "with a comment on what it did", answers: []string{"<updated_code>#EDIT: why\na</updated_code>"}, want: "a", calls: 1},
		{name: "at the second try", answers: []string{"no tags", "<updated_code>a</updated_code>"}, want: "a", calls: 2},
		{name: "never", answers: []string{"<updated_code>a"}, calls: 3, fails: "in the form"},
	} {
		server, sent := fake(t, test.answers...)
		m, err := llm.New(llm.Config{URL: server.URL + "/v1", Model: "small", Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Merge(t.Context(), "old lines", "new lines")
		if got != test.want || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: got %q and %v, want %q", test.name, got, err, test.want)
		}
		if len(*sent) != test.calls {
			t.Errorf("%s: got %d calls, want %d", test.name, len(*sent), test.calls)
		}
		for _, want := range []string{`/v1/chat/completions Bearer k {"model":"small"`, `original_code\u003eold lines\u003c`, `update_snippet\u003enew lines\u003c`} {
			if !strings.Contains((*sent)[0], want) {
				t.Errorf("%s: %q is not in what was sent: %s", test.name, want, (*sent)[0])
			}
		}
	}
}

func TestMergeFails(t *testing.T) {
	t.Parallel()
	elsewhere, sent := fake(t, "<updated_code>a</updated_code>")
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"refused":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret reason", http.StatusUnauthorized) }, "401"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "reading"},
		"no choices": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, "no choices"},
		"led on": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "307"},
	} {
		server := httptest.NewServer(test.handler)
		m, err := llm.New(llm.Config{URL: server.URL, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Merge(t.Context(), "a", "b"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.want)
		}
		server.Close()
	}
	if len(*sent) > 0 {
		t.Errorf("the key went elsewhere: %v", *sent)
	}
	for _, wrong := range []string{"", "localhost:1", "ftp://a/b", "http://", "http://%zz"} {
		if _, err := llm.New(llm.Config{URL: wrong}); err == nil {
			t.Errorf("%q: got no error", wrong)
		}
	}
}
