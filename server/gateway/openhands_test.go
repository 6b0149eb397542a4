package gateway_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"mime/multipart"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/gateway"
)

const startBody = `{"image":"debian","command":["/openhands/micromamba/bin/micromamba","run","python","-u","-m","openhands.runtime.action_execution_server",
	"60000","--working-dir","/w","--plugins","agent_skills","jupyter","--username","openhands","--user-id","1234","--no-enable-browser"],
	"working_dir":"/openhands/code/","environment":{"DEBUG":"true"},"session_id":"s/1","resource_factor":2,"new_member":[]}`

// TestOpenHands is the sequence of calls that RemoteRuntime makes.
func TestOpenHands(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const session, runtime = "/sessions/{session_id}", "/runtime/{runtime_id}"
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 404, "no such sandbox")
	started := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody))
	if started.URL != "http://example.com/sandboxes/"+started.RuntimeID || len(started.SessionKey) != 64 || started.Status != "running" || started.PodStatus != "ready" {
		t.Errorf("/start: got %+v", started)
	}
	id := `{"runtime_id":"` + started.RuntimeID + `"}`
	at := "/runtime/" + started.RuntimeID
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"ready"`)
	if w := h.through(t, started.RuntimeID, "GET", "/server_info", api.KeyHeader, started.SessionKey); w.Code != 200 {
		t.Errorf("with both keys: got %d", w.Code)
	}
	s := find(t, h, started.RuntimeID)
	details, err := h.host.Inspect(t.Context(), s)
	if err == nil && details.Memory != 0 && details.Memory != 4<<30 {
		t.Errorf("memory: got %d, want it doubled", details.Memory)
	}
	if s.User != "openhands:1234" || s.Owner != "openhands" {
		t.Errorf("got user %s, owner %s", s.User, s.Owner)
	}
	// Again, also from another gateway of the same host.
	other, err := gateway.New(gateway.Config{Host: h.host, Key: theKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	h.Gateway = other
	again := into[api.Runtime](t, h.ask(t, "GET", session, "/sessions/s%2F1", ""))
	started.WorkHosts, again.WorkHosts = nil, nil
	if !reflect.DeepEqual(again, started) {
		t.Errorf("found again: got %+v, want %+v", again, started)
	}
	if twice := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody)); twice.RuntimeID != started.RuntimeID || twice.SessionKey != started.SessionKey {
		t.Errorf("started twice: got %+v, want %+v", twice, started)
	}
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 200, "paused")
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"paused"`)
	want(t, h.through(t, started.RuntimeID, "GET", "/x"), 503, "paused")
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 200, `"pod_status":"ready"`)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"running"`)
	h.engine.Kill("actiond-" + started.RuntimeID)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 200, `"status":"stopped"`)
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"failed"`)
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 200, "stopped")
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 200, `"pod_status":"ready"`)
	h.engine.Kill("actiond-" + started.RuntimeID)
	if back := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody)); back.SessionKey != started.SessionKey || back.PodStatus != "ready" {
		t.Errorf("started after its death: got %+v", back)
	}
	for range 2 {
		want(t, h.ask(t, "POST", "/stop", "/stop", id), 200, `"pod_status":"not found"`)
	}
	want(t, h.ask(t, "GET", runtime, at, ""), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "GET", session, "/sessions/s%2F1", ""), 404, "")
	want(t, h.ask(t, "POST", "/resume", "/resume", id), 404, "")
	want(t, h.ask(t, "POST", "/pause", "/pause", id), 404, "")
	if left := h.engine.Containers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOpenHandsRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for body, status := range map[string]int{
		`{"image":"debian","session_id":"a","runtime_class":"sysbox-runc"}`:   422,
		`{"image":"debian","session_id":"b","command":["--user-id","x"]}`:     422,
		`{"image":"debian","session_id":"c","command":["--working-dir","x"]}`: 422,
		`{"image":"nowhere","session_id":"d"}`:                                422,
		`{"image":"debian"}`:                                                  400,
	} {
		want(t, h.ask(t, "POST", "/start", "/start", body), status, "detail")
	}
	failed := docker.ID("openhands session d")
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", "/runtime/"+failed, ""), 200, `"pod_status":"failed"`)
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", "/runtime/..%2fx", ""), 200, `"pod_status":"not found"`)
	want(t, h.ask(t, "POST", "/stop", "/stop", `{"runtime_id":"../x"}`), 200, `"not found"`)
}

// A creation that takes longer than a client waits is answered, goes on, and is
// undone when it is stopped.
func TestOpenHandsSlow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	goOn := make(chan bool)
	h.engine.Hold = func(call string) {
		if call == "start" {
			<-goOn
		}
	}
	first := into[api.Runtime](t, h.ask(t, "POST", "/start", "/start", startBody))
	if first.PodStatus != "pending" || len(first.SessionKey) != 64 {
		t.Errorf("got %+v, want it pending", first)
	}
	at := "/runtime/" + first.RuntimeID
	want(t, h.ask(t, "GET", "/runtime/{runtime_id}", at, ""), 200, `"pod_status":"pending"`)
	want(t, h.ask(t, "GET", "/sessions/{session_id}", "/sessions/s%2F1", ""), 200, first.SessionKey)
	want(t, h.ask(t, "POST", "/start", "/start", strings.Replace(startBody, "1234", "1235", 1)), 409, "being made")
	if w := h.through(t, first.RuntimeID, "GET", "/x"); w.Code != 503 && w.Code != 404 {
		t.Errorf("got %d of a sandbox that is not there yet", w.Code)
	}
	close(goOn)
	eventually(t, func() bool {
		return strings.Contains(h.ask(t, "GET", "/runtime/{runtime_id}", at, "").Body.String(), `"pod_status":"ready"`)
	})
	if w := h.through(t, first.RuntimeID, "GET", "/x", api.KeyHeader, first.SessionKey); w.Code != 200 {
		t.Errorf("with the key that was told before: got %d %s", w.Code, w.Body)
	}
}

// A gateway that ends undoes what it began.
func TestOpenHandsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	begun, goOn := make(chan bool, 1), make(chan bool)
	h.engine.Hold = func(call string) {
		if call == "start" {
			begun <- true
			<-goOn
		}
	}
	done := make(chan int)
	go func() { done <- h.ask(t, "POST", "/start", "/start", startBody).Code }()
	<-begun
	closed := make(chan bool)
	go func() { h.Close(); close(closed) }()
	if status := <-done; status != 503 {
		t.Errorf("got %d, want 503", status)
	}
	close(goOn)
	<-closed
	if _, err := h.host.Prune(t.Context(), false); err != nil {
		t.Error(err)
	}
	if left := h.engine.Containers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	want(t, h.ask(t, "POST", "/start", "/start", startBody), 503, "shutting down")
}

func form(t *testing.T, dockerfile string, tags ...string) (body, contentType string) {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	_ = archive.WriteHeader(&tar.Header{Name: "Dockerfile", Size: int64(len(dockerfile)), Mode: 0o600})
	_, _ = archive.Write([]byte(dockerfile))
	_ = archive.Close()
	_ = zip.Close()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file, _ := w.CreateFormFile("context", "context.tar.gz")
	_, _ = file.Write([]byte(base64.StdEncoding.EncodeToString(packed.Bytes())))
	for i, tag := range tags {
		_ = w.WriteField([]string{"target_image", "tags"}[min(i, 1)], tag)
	}
	_ = w.Close()
	return b.String(), w.FormDataContentType()
}

func TestBuild(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	want(t, h.ask(t, "GET", "/registry_prefix", "/registry_prefix", ""), 200, `"actiond"`)
	exists := func(name string) string {
		return h.ask(t, "GET", "/image_exists", "/image_exists?image="+name, "").Body.String()
	}
	if got := exists("debian"); !strings.Contains(got, `"exists":true`) || !strings.Contains(got, `"image_size_bytes":1234`) {
		t.Errorf("got %s", got)
	}
	if got := exists("actiond/runtime:1"); got != `{"exists":false}` {
		t.Errorf("got %s", got)
	}
	want(t, h.ask(t, "GET", "/image_exists", "/image_exists", ""), 422, "image=NAME")
	for _, tt := range []struct{ dockerfile, want string }{{"FROM debian\n", "SUCCESS"}, {"RUN x\n", "unknown instruction"}} {
		body, kind := form(t, tt.dockerfile, "actiond/runtime:1", "actiond/runtime:2")
		begun := into[api.Build](t, h.ask(t, "POST", "/build", "/build", body, "Content-Type", kind))
		var status string
		eventually(t, func() bool {
			status = h.ask(t, "GET", "/build_status", "/build_status?build_id="+begun.BuildID, "").Body.String()
			return !strings.Contains(status, "PENDING")
		})
		if !strings.Contains(status, tt.want) || begun.Image != "actiond/runtime:1" {
			t.Errorf("got %s, want %s", status, tt.want)
		}
	}
	if got := exists("actiond/runtime:2"); !strings.Contains(got, `"exists":true`) {
		t.Errorf("after the build: got %s", got)
	}
	body, kind := form(t, "FROM debian\n", "debian:bookworm")
	want(t, h.ask(t, "POST", "/build", "/build", body, "Content-Type", kind), 422, "must begin with actiond/")
	body, kind = form(t, "FROM debian\n")
	want(t, h.ask(t, "POST", "/build", "/build", body, "Content-Type", kind), 422, "target_image")
	want(t, h.ask(t, "POST", "/build", "/build", "x"), 400, "multipart")
	want(t, h.ask(t, "GET", "/build_status", "/build_status?build_id=x", ""), 404, "no build")
}
