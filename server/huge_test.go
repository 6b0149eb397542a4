package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// huge fills a directory with so many names of so many bytes: links, which need no
// inode of their own.
func huge(tb testing.TB, dir string, names, length int) {
	tb.Helper()
	first := filepath.Join(dir, strings.Repeat("x", length))
	must(tb, os.WriteFile(first, nil, 0o600))
	for i := range names - 1 {
		name := fmt.Sprintf("%0*d", length, i)
		if err := os.Link(first, filepath.Join(dir, name)); err != nil { // too many links to one file
			must(tb, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			first = filepath.Join(dir, name)
		}
	}
}

// A directory that does not fit into memory is refused before it is held there.
func TestHugeDirectory(t *testing.T) {
	dir := t.TempDir()
	huge(t, dir, 66_000, 255) // 16 MiB of names
	s := newServer(t)
	for name, q := range map[string]request{
		"list":     post("/list_files", `{"path":"`+dir+`"}`),
		"download": get("/download_files?path=" + url.QueryEscape(dir)),
	} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := q.send(s)
		runtime.ReadMemStats(&after)
		if w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: got %d %.200s, want 413", name, w.Code, w.Body)
		}
		if w.Header().Get("Content-Type") != jsonType {
			t.Errorf("%s: got %v, want JSON", name, w.Header())
		}
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 48<<20 {
			t.Errorf("%s: the heap grew by %d MiB", name, grown>>20)
		}
	}
	// The directory above it can be listed.
	if w := post("/list_files", `{"path":"`+filepath.Dir(dir)+`"}`).send(s); w.Code != http.StatusOK {
		t.Errorf("above: got %d %s", w.Code, w.Body)
	}
}

// A file that is nested too deeply is left out of an archive, which says so.
func TestDownloadNested(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/top", []byte("top"), 0o600))
	deep := dir
	for range 400 {
		deep += "/d"
	}
	must(t, os.MkdirAll(deep, 0o700))
	must(t, os.WriteFile(deep+"/file", nil, 0o600))
	must(t, os.WriteFile(dir+strings.Repeat("/d", 255)+"/inside", []byte("inside"), 0o600))
	got, r := unzip(t, download(newServer(t), dir).Body.Bytes())
	wantFiles(t, got, map[string]string{"top": "top", strings.Repeat("d/", 255) + "inside": "inside"})
	if !strings.HasPrefix(r.Comment, "Not readable, and left out: 1\n") || !strings.Contains(r.Comment, "256 directories above it") {
		t.Errorf("got comment %q", r.Comment)
	}
}
