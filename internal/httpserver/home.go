package httpserver

import (
	"fmt"
	"html"
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

// homePage is a page, for the title, the text and the list of links. With html/template the linker
// would keep all methods of all types, a tenth of the program.
const homePage = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>%[1]s</title>
<h1>%[1]s</h1>
<p>%[2]s</p>
%[3]s</html>
`

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
	links := ""
	for _, link := range h.Links {
		links += fmt.Sprintf("<li><a href=\"%[1]s\">/%[1]s</a>: %[2]s</li>\n", html.EscapeString(link.Path), html.EscapeString(link.Text))
	}
	if links != "" {
		links = "<ul>\n" + links + "</ul>\n"
	}
	page := fmt.Sprintf(homePage, html.EscapeString(h.Title), html.EscapeString(h.Text), links)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.Header().Set("Vary", "Accept")
	WriteBody(w, status, "text/html; charset=utf-8", []byte(page))
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
