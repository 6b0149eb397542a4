package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/server"
)

// The file routes do not show what procfs knows about the server, nor write there.
func TestRoutesOnOwnProcfs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Symlink("/proc/self", dir+"/link"))
	must(t, os.Symlink("/proc/self/maps", dir+"/maps.png"))
	s := newServer(t)
	for _, base := range []string{"/proc/self", fmt.Sprintf("/proc/%d", os.Getpid()), dir + "/link", "/proc/thread-self"} {
		if got := post("/list_files", `{"path":"`+base+`/fd"}`).send(s).Body.String(); got != "[]" {
			t.Errorf("%s: the descriptors are %s", base, got)
		}
		for _, name := range []string{"/maps", "/fd", ""} {
			if w := download(s, base+name); w.Code == http.StatusOK {
				t.Errorf("%s%s: got %d", base, name, w.Code)
			}
		}
		if w := upload(t, s, base, "comm", []byte("changed")); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d %s for an upload, want 400", base, w.Code, w.Body)
		}
	}
	got, _ := unzip(t, download(s, dir).Body.Bytes())
	for name := range got {
		t.Errorf("the archive has %s", name)
	}
	r := httptest.NewRequest(http.MethodGet, "/view?path="+url.QueryEscape(filepath.Join(dir, "maps.png")), nil)
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	w := httptest.NewRecorder()
	server.Viewer(func(work func() error) error { return work() }).Handler.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		t.Errorf("the viewer shows %.100s", w.Body)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	if strings.Contains(string(comm), "changed") {
		t.Error("the server has another name now")
	}
}
