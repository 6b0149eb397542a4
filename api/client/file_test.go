package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// A file whose answer is cut is written again with the same id and content.
func TestWriteFileAfterACut(t *testing.T) {
	t.Parallel()
	want := api.FileObservation{Path: "/f", SHA256: "ab", Size: 3, Created: true, Undoable: true}
	answer, err := api.EncodeObservation(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		content func() io.Reader
		bodies  []string
		fails   bool
	}{
		{"a seeker", func() io.Reader {
			r := strings.NewReader("skipped one")
			_, _ = r.Seek(8, io.SeekStart)
			return r
		}, []string{"one", "one"}, false},
		{"a pipe", func() io.Reader { return io.MultiReader(strings.NewReader("one")) }, []string{"one"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var bodies, ids []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, `{"actions":[]}`)
					return
				}
				body, _ := io.ReadAll(r.Body)
				bodies, ids = append(bodies, string(body)), append(ids, r.Header.Get("Idempotency-Key"))
				if r.URL.Query().Get("mode") != "0600" || r.URL.Query().Get("path") != "/a b" || r.Header.Get("If-None-Match") != "*" {
					t.Errorf("sent: %s %v", r.URL, r.Header)
				}
				if len(bodies) == 1 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(answer)
			}))
			defer srv.Close()
			c, err := client.New(client.Config{BaseURL: srv.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := c.WriteFile(t.Context(), "/a b", test.content(), client.WriteOptions{Mode: 0o600, IfNew: true})
			if test.fails != (err != nil) || !test.fails && got != want {
				t.Errorf("got %+v %v", got, err)
			}
			if strings.Join(bodies, ",") != strings.Join(test.bodies, ",") || ids[0] == "" || ids[0] != ids[len(ids)-1] {
				t.Errorf("sent %q as %q", bodies, ids)
			}
		})
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"ab"`)
		w.Header().Set(api.ModeHeader, "0640")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte("0123456789")))
	}))
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := client.FileInfo{Size: 10, Mode: 0o640, SHA256: "ab"}
	if data, err := c.ReadFile(t.Context(), "/f"); err != nil || string(data) != "0123456789" {
		t.Errorf("ReadFile: %q %v", data, err)
	}
	if info, err := c.StatFile(t.Context(), "/f"); err != nil || info != want {
		t.Errorf("StatFile: %+v %v", info, err)
	}
	r, info, err := c.OpenFile(t.Context(), "/f", 7)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if _ = r.Close(); err != nil || string(data) != "789" || info != want {
		t.Errorf("OpenFile: %q %+v %v", data, info, err)
	}
}

func TestTrees(t *testing.T) {
	t.Parallel()
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(api.IdentityHeader) == "" {
			t.Errorf("%s has no identity", r.RequestURI)
		}
		got = append(got, r.Method+" "+r.RequestURI)
		if strings.Contains(r.RequestURI, "half") {
			write(t, w, `{"message":"m","observation":"error","content":"3 names were removed","extras":{},"outcome":"failed","code":"permission_denied"}`)
			return
		}
		write(t, w, `{"message":"m","observation":"file","content":"","extras":{"path":"/d","sha256":"","size":0,"created":true,"undoable":false,"directory":true,"moved_from":"/c","removed":3,"entries":2},"outcome":"succeeded"}`)
	})
	made, err1 := c.MakeDirectory(t.Context(), "/a b", true, 0o700)
	moved, err2 := c.MoveFile(t.Context(), "/c", "/d", false)
	removed, err3 := c.RemoveAll(t.Context(), "/d")
	if err := errors.Join(err1, err2, err3); err != nil || !made.Directory || moved.MovedFrom != "/c" || removed.Removed != 3 {
		t.Errorf("got %+v %+v %+v, %v", made, moved, removed, err)
	}
	_, err := c.RemoveAll(t.Context(), "/half")
	if partly, ok := errors.AsType[*client.PartlyDoneError](err); !ok || partly.Observation.Code != "permission_denied" {
		t.Errorf("got %v", err)
	}
	if entries, err := c.UnpackOnce(t.Context(), "/u", strings.NewReader("tar"), true); entries != 2 || err != nil {
		t.Errorf("got %d, %v", entries, err)
	}
	want := []string{
		"POST /v1/files/mkdir?mode=0700&parents=true&path=%2Fa+b", "POST /v1/files/move?path=%2Fc&replace=false&to=%2Fd",
		"DELETE /v1/files?path=%2Fd&recursive=true", "DELETE /v1/files?path=%2Fhalf&recursive=true", "POST /v1/unpack?create=true&path=%2Fu",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
