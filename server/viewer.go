package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server/files"
)

// Viewer shows files as pages, for a browser on this machine alone: the client
// of the protocol has agents look at PDFs and images that way (docs/reference/openhands-protocol.md,
// section 8.3). It asks for no key, shows only files of a few kinds that the
// sandbox's user may read, and nothing to pages of other origins.
//
// The agent reaches it too, so the caller serves it on a [httpserver.LimitListener]: a page
// takes the same memory whatever the size of its file, and MaxViews bounds how many
// are served at a time.
func Viewer(as func(func() error) error) *http.Server {
	v := &viewer{as: as}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", httpserver.JSON)
		_, _ = io.WriteString(w, `{"status":"File viewer server is running"}`)
	})
	mux.HandleFunc("GET /view", v.view)
	srv := httpserver.NewServer(context.Background(), localOnly(mux), maxHeader, slog.New(slog.DiscardHandler))
	srv.WriteTimeout = time.Minute
	return srv
}

// MaxViews is how many connections the listener of a viewer admits. Half of them may be without a key, as all of
// its are: more than a browser opens to one host.
const MaxViews = 32

type viewer struct{ as func(func() error) error }

// maxView bounds a file; it is sent as base64 in the page.
const maxView = 32 << 20

// localOnly refuses clients on other machines, requests by another name of this one (DNS
// rebinding), and those of pages of another origin.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remote, _, _ := net.SplitHostPort(r.RemoteAddr)
		host := hostOf(r)
		site := r.Header.Get("Sec-Fetch-Site")
		if !net.ParseIP(remote).IsLoopback() || host != "localhost" && !net.ParseIP(host).IsLoopback() || site == "cross-site" || site == "same-site" {
			viewError(w, http.StatusForbidden, "The file viewer answers only a browser on this machine")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// images are the kinds of images that are shown.
var images = map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}

func (v *viewer) view(w http.ResponseWriter, r *http.Request) {
	paths := r.URL.Query()["path"]
	if len(paths) == 0 {
		viewError(w, http.StatusUnprocessableEntity, "The parameter path is missing: /view?path=/absolute/path")
		return
	}
	path := paths[len(paths)-1]
	if !filepath.IsAbs(path) {
		viewError(w, http.StatusBadRequest, "The path must be absolute: "+path)
		return
	}
	var f *os.File
	err := v.as(func() (err error) {
		f, err = openView(path)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		viewError(w, http.StatusNotFound, "There is no file "+path)
	case errors.Is(err, errIsDirectory):
		viewError(w, http.StatusBadRequest, path+" is a directory")
	case err != nil:
		viewError(w, http.StatusInternalServerError, "The file cannot be shown: "+err.Error())
	default:
		defer f.Close()
		before, after := imageBefore, imageAfter
		name, kind := html.EscapeString(filepath.Base(path)), strings.ToLower(filepath.Ext(path))
		if kind == ".pdf" {
			before, after = pdfBefore, pdfAfter
		}
		before = strings.NewReplacer("NAME", name, "TYPE", images[kind]).Replace(before)
		viewPage(w, http.StatusOK, filepath.Base(path), func() {
			_, _ = io.WriteString(w, before)
			content := base64.NewEncoder(base64.StdEncoding, w)
			_, _ = io.Copy(content, io.LimitReader(f, maxView)) // the page shows the part that could be read
			_ = content.Close()
			_, _ = io.WriteString(w, after)
		})
	}
}

var (
	errIsDirectory = errors.New("it is a directory")
	errNotPlain    = errors.New("it is not a regular file")
)

// openView opens a file that can be shown.
func openView(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	kind := strings.ToLower(filepath.Ext(path))
	switch {
	case info.IsDir():
		return nil, errIsDirectory
	case kind != ".pdf" && images[kind] == "":
		return nil, fmt.Errorf("files of the type %q are not supported; .pdf, .png, .jpg, .jpeg and .gif are", kind)
	case !info.Mode().IsRegular(): // opening a device may have effects
		return nil, errNotPlain
	}
	f, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	info, err = f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errNotPlain
	case info.Size() > maxView:
		err = fmt.Errorf("it has %d bytes, and at most %d are shown", info.Size(), maxView)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func viewError(w http.ResponseWriter, status int, text string) {
	viewPage(w, status, "Error", func() { _, _ = io.WriteString(w, "<h1>Error</h1><p>"+html.EscapeString(text)+"</p>") })
}

// viewPage writes a page that may load one library and nothing else.
func viewPage(w http.ResponseWriter, status int, title string, body func()) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline' "+
		pdfLibrary+"; worker-src blob: "+pdfLibrary+"; connect-src "+pdfLibrary+"; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>File Viewer - %s</title>"+
		"<style>body { margin: 0; text-align: center } img, canvas { max-width: 100%% }</style></head>\n<body>", html.EscapeString(title))
	body()
	_, _ = io.WriteString(w, "</body></html>\n")
}

const (
	imageBefore = `<img alt="NAME" src="data:TYPE;base64,`
	imageAfter  = `">`
)

// pdfBody draws a PDF with pdf.js, which comes from the Internet as in the
// reference; without it the page says so.
const (
	pdfLibrary = "https://cdnjs.cloudflare.com/ajax/libs/pdf.js/3.11.174/"
	pdfBefore  = `<div id="pages"><canvas id="first" width="800" height="600"></canvas></div><p id="problem"></p>
<script src="` + pdfLibrary + `pdf.min.js"></script>
<script>
(async () => {
  const bytes = Uint8Array.from(atob("`
	pdfAfter = `"), c => c.charCodeAt(0));
  pdfjsLib.GlobalWorkerOptions.workerSrc = "` + pdfLibrary + `pdf.worker.min.js";
  const file = await pdfjsLib.getDocument({data: bytes}).promise;
  for (let n = 1; n <= file.numPages; n++) {
    const page = await file.getPage(n), viewport = page.getViewport({scale: 1.5});
    const canvas = n === 1 ? document.getElementById("first") : document.getElementById("pages").appendChild(document.createElement("canvas"));
    canvas.width = viewport.width;
    canvas.height = viewport.height;
    await page.render({canvasContext: canvas.getContext("2d"), viewport}).promise;
  }
})().catch(e => { document.getElementById("problem").textContent = "The PDF cannot be drawn: " + e.message; });
</script>`
)
