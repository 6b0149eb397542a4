package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/server/bound"
	"github.com/actiond/actiond/server/reply"
)

// Viewer shows files as pages, for a browser on this machine alone: the client
// of the protocol has agents look at PDFs and images that way (openhands.md,
// section 8.3). It asks for no key, shows only files of a few kinds that the
// sandbox's user may read, and nothing to pages of other origins.
func Viewer(as func(func() error) error) *http.Server {
	v := &viewer{as: as}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", reply.JSON)
		_, _ = io.WriteString(w, `{"status":"File viewer server is running"}`)
	})
	mux.HandleFunc("GET /view", v.view)
	return &http.Server{Handler: localOnly(mux), ReadHeaderTimeout: bound.HeaderTime, IdleTimeout: bound.IdleTime, WriteTimeout: time.Minute, MaxHeaderBytes: maxHeader}
}

type viewer struct{ as func(func() error) error }

// maxView bounds a file; it is sent as base64 in the page.
const maxView = 32 << 20

// localOnly refuses who does not come from this machine, who was led here by
// another name for it, and what a page of another origin asks for.
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
	var data []byte
	err := v.as(func() (err error) {
		data, err = readView(path)
		return err
	})
	kind := strings.ToLower(filepath.Ext(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		viewError(w, http.StatusNotFound, "There is no file "+path)
	case errors.Is(err, errIsDirectory):
		viewError(w, http.StatusBadRequest, path+" is a directory")
	case err != nil:
		viewError(w, http.StatusInternalServerError, "The file cannot be shown: "+err.Error())
	case kind == ".pdf":
		viewPage(w, http.StatusOK, filepath.Base(path), fmt.Sprintf(pdfBody, base64.StdEncoding.EncodeToString(data)))
	default:
		viewPage(w, http.StatusOK, filepath.Base(path), fmt.Sprintf(`<img alt="%s" src="data:%s;base64,%s">`,
			html.EscapeString(filepath.Base(path)), images[kind], base64.StdEncoding.EncodeToString(data)))
	}
}

var errIsDirectory = errors.New("it is a directory")

// readView reads a file that can be shown.
func readView(path string) ([]byte, error) {
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
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxView:
		return nil, fmt.Errorf("it has %d bytes, and at most %d are shown", info.Size(), maxView)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxView))
}

func viewError(w http.ResponseWriter, status int, text string) {
	viewPage(w, status, "Error", "<h1>Error</h1><p>"+html.EscapeString(text)+"</p>")
}

// viewPage writes a page that may load one library and nothing else.
func viewPage(w http.ResponseWriter, status int, title, body string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline' "+
		pdfLibrary+"; worker-src blob: "+pdfLibrary+"; connect-src "+pdfLibrary+"; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>File Viewer - %s</title>"+
		"<style>body { margin: 0; text-align: center } img, canvas { max-width: 100%% }</style></head>\n<body>%s</body></html>\n", html.EscapeString(title), body)
}

// pdfBody draws a PDF with pdf.js, which comes from the Internet as in the
// reference; without it the page says so.
const (
	pdfLibrary = "https://cdnjs.cloudflare.com/ajax/libs/pdf.js/3.11.174/"
	pdfBody    = `<div id="pages"><canvas id="first" width="800" height="600"></canvas></div><p id="problem"></p>
<script src="` + pdfLibrary + `pdf.min.js"></script>
<script>
(async () => {
  const bytes = Uint8Array.from(atob("%s"), c => c.charCodeAt(0));
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
