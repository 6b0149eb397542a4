package tools_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// malformed is a call as models really make them.
type malformed struct {
	Kind      string `json:"kind"`
	Dialect   string `json:"dialect"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"`
	// Answer is the complaint after its code, or the translation.
	Answer string `json:"answer"`
}

// Each call of the corpus has this answer, word by word. UPDATE=1 rewrites the
// answers.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const file = "testdata/malformed.json"
	data := testhelp.ReadFile(t, file)
	var corpus []malformed
	if err := json.Unmarshal(data, &corpus); err != nil {
		t.Fatal(err)
	}
	if len(corpus) < 60 {
		t.Errorf("got %d calls, want 60 at least", len(corpus))
	}
	for i, c := range corpus {
		got := translate(t, c.Dialect, c.Tool, c.Arguments)
		if os.Getenv("UPDATE") != "" {
			corpus[i].Answer = got
		} else if got != c.Answer {
			t.Errorf("%s:\ngot  %s\nwant %s", c.Kind, got, c.Answer)
		}
	}
	if os.Getenv("UPDATE") == "" {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(corpus); err != nil {
		t.Fatal(err)
	}
	testhelp.WriteFile(t, file, b.Bytes(), 0o644)
}
