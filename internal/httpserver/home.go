package httpserver

import (
	"html/template"
	"mime"
	"net/http"
	"strings"
)

// Home is the page of a server for browsers, at its root or instead of a refusal.
type Home struct {
	// Title is the title of the page, Text the paragraph under it.
	Title, Text string
	Links       []Link
}

// Link is a path of the same server without its first slash, so that it also works behind
// a proxy's prefix.
type Link struct{ Path, Text string }

var homePage = template.Must(template.New("home").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{with .Links}}<ul>
{{range .}}<li><a href="{{.Path}}">/{{.Path}}</a>: {{.Text}}</li>
{{end}}</ul>
{{end}}</html>
`))

// Handler answers a request that accepts HTML with the page, and passes every other one to
// otherwise.
func (h Home) Handler(otherwise Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !acceptsHTML(r) {
			return otherwise(w, r)
		}
		return h.Write(w, http.StatusOK)
	}
}

// Write answers with the page, which cannot run scripts or be in a frame.
func (h Home) Write(w http.ResponseWriter, status int) error {
	var page strings.Builder
	if err := homePage.Execute(&page, h); err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.Header().Set("Vary", "Accept")
	WriteBody(w, status, "text/html; charset=utf-8", []byte(page.String()))
	return nil
}

// acceptsHTML reports whether a request names HTML in its Accept header, as browsers do
// and programs do not.
func acceptsHTML(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, params, err := mime.ParseMediaType(part); err == nil && kind == "text/html" && params["q"] != "0" {
			return true
		}
	}
	return false
}
