package httpserver_test

import (
	"net/http/httptest"
	"testing"

	"github.com/actiond/actiond/internal/httpserver"
)

func TestHome(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	h := httpserver.Home{Title: "a<b", Text: "c&d", Links: []httpserver.Link{{Path: `p"q`, Text: "e<f"}}}
	if err := h.Write(w, 403); err != nil || w.Code != 403 {
		t.Fatalf("got %d and %v", w.Code, err)
	}
	const want = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>a&lt;b</title>
<h1>a&lt;b</h1>
<p>c&amp;d</p>
<ul>
<li><a href="p&#34;q">/p&#34;q</a>: e&lt;f</li>
</ul>
</html>
`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}
