// Package drivertest is the suite that every driver of sandboxes passes. Only tests
// import it.
package drivertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// Suite describes the driver under test.
type Suite struct {
	// Open opens a driver without sandboxes, and closes it with the test.
	Open func(t *testing.T) sandbox.Driver
	// Spec is the specification of a small sandbox.
	Spec sandbox.Spec
}

// Run runs the suite. A test of an ability that the driver lacks checks that the
// refusal names the driver.
func (s Suite) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T, sandbox.Driver, sandbox.Spec){
		"create": testCreate, "creators": testCreators, "cancelled": testCancelled, "renew": testRenew, "stop": testStop,
		"files": testFiles, "logs": testLogs, "pool": testPool, "prune": testPrune,
		"network": testNetwork,
	} {
		t.Run(name, func(t *testing.T) {
			d := s.Open(t)
			test(t, d, s.Spec)
		})
	}
}

// BuildServer builds the server program, which is removed with the test.
func BuildServer(t *testing.T) string {
	server := filepath.Join(t.TempDir(), "server")
	if err := testhelp.Build(t.Context(), server, "github.com/actiond/actiond/cmd/server"); err != nil {
		t.Fatal(err)
	}
	return server
}

// EmptyHome gives this process, and the sandboxes that it starts, an empty home
// directory until remove is called: the personal files of the account's shell could slow
// each of them down, and a killed shell could leave their locks behind. Go keeps its
// caches. TestMain calls it.
func EmptyHome() (remove func(), err error) {
	for _, name := range []string{"GOCACHE", "GOPATH", "GOMODCACHE"} {
		value, err := exec.CommandContext(context.Background(), "go", "env", name).Output()
		if err != nil {
			return nil, fmt.Errorf("asking go for %s: %w", name, err)
		}
		if err := os.Setenv(name, strings.TrimSpace(string(value))); err != nil {
			return nil, err
		}
	}
	home, err := os.MkdirTemp("", "home-")
	if err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(home) }, os.Setenv("HOME", home)
}

// need returns an ability, or false after it checked the refusal.
func need[T any](t *testing.T, d sandbox.Driver) (T, bool) {
	t.Helper()
	able, err := sandbox.Needs[T](d, "do this")
	if err == nil {
		return able, true
	}
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), d.Platform()+" cannot do this") {
		t.Errorf("the refusal is %q, and must name %q", err, d.Platform())
	}
	return able, false
}

// create creates a sandbox that is removed with the test.
func create(t *testing.T, d sandbox.Driver, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Delete(context.WithoutCancel(t.Context()), s); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
	return s
}

// run runs a command in a sandbox over HTTP, and returns the status and the body.
func run(t *testing.T, s *sandbox.Sandbox, key, command string) (status int, body string) {
	t.Helper()
	return post(t, s, key, "/execute_action", fmt.Sprintf(`{"action": {"action": "run", "args": {"command": %q, "blocking": true}}}`, command))
}

func post(t *testing.T, s *sandbox.Sandbox, key, path, sent string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox"+path, strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Session-Api-Key", key)
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
		DisableKeepAlives: true,
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("asking the server of sandbox %s: %v", s.ID, err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// works fails the test unless commands run in the sandbox, for its key alone.
func works(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	key, err := s.Key()
	if err != nil || key == "" {
		t.Fatalf("Key: %v", err)
	}
	if status, body := run(t, s, key, "echo $((20+22))"); status != http.StatusOK || !strings.Contains(body, "42") {
		t.Errorf("a command: %d, %s", status, body)
	}
	for _, wrong := range []string{"", key + "x"} {
		if status, body := run(t, s, wrong, "echo $((20+22))"); status/100 != 4 || strings.Contains(body, "42") {
			t.Errorf("a command with a wrong key: %d, %s", status, body)
		}
	}
}

// gone fails the test unless the driver has no sandbox of that id.
func gone(t *testing.T, d sandbox.Driver, id string) {
	t.Helper()
	if _, err := d.Get(t.Context(), id); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Get of %s, which does not exist: %v", id, err)
	}
}

func testCreate(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	ctx := t.Context()
	gone(t, d, "0123456789ab")
	spec.Key, spec.Name, spec.Owner, spec.Labels = "one", "first", "me", map[string]string{"a": "b"}
	s := create(t, d, spec)
	if s.ID != sandbox.ID("one") || s.Name != "first" || s.Owner != "me" || s.Labels["a"] != "b" || s.State != sandbox.Ready {
		t.Errorf("created %+v", *s)
	}
	works(t, s)
	for _, ref := range []string{s.ID, "first", s.ID[:8]} {
		if found, err := d.Get(ctx, ref); err != nil || found.ID != s.ID {
			t.Errorf("Get of %q: %v, %v", ref, found, err)
		}
	}
	again, err := d.Create(ctx, spec)
	if err != nil || again.ID != s.ID {
		t.Fatalf("the same key again: %v, %v", again, err)
	}
	works(t, again)
	other := spec
	other.Env = map[string]string{"OTHER": "1"}
	if _, err := d.Create(ctx, other); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the same key for another specification: %v", err)
	}
	other.Key = "two"
	if _, err := d.Create(ctx, other); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("another key for the same name: %v", err)
	}
	other.Name = "no/name"
	if _, err := d.Create(ctx, other); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a name that cannot be one: %v", err)
	}
	if all, err := d.List(ctx); err != nil || len(all) != 1 || all[0].ID != s.ID {
		t.Errorf("List: %v, %v", all, err)
	}
	for range 2 {
		if err := d.Delete(ctx, s); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	gone(t, d, s.ID)
	// Who remembers the first one's key and connections must see that this is another.
	if next := create(t, d, spec); next.ID != s.ID || next.Instance == "" || next.Instance == s.Instance {
		t.Errorf("the same key after Delete: instance %q of %s, before %q of %s", next.Instance, next.ID, s.Instance, s.ID)
	}
}

// Creators with one key at once get one sandbox.
func testCreators(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	spec.Key = "shared"
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if s, err := d.Create(t.Context(), spec); err != nil || s.ID != sandbox.ID("shared") {
				t.Errorf("Create: %v, %v", s, err)
			}
		})
	}
	group.Wait()
	works(t, create(t, d, spec))
	if all, err := d.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List: %v, %v", all, err)
	}
}

// A creation that is cancelled leaves nothing, whenever that is, or is complete.
func testCancelled(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	for i, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond} {
		spec.Key = fmt.Sprint("cancelled ", i)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		s, err := d.Create(ctx, spec)
		cancel()
		if err == nil {
			works(t, s)
			if err := d.Delete(t.Context(), s); err != nil {
				t.Error(err)
			}
		}
		gone(t, d, sandbox.ID(spec.Key))
	}
	if pruner, ok := d.(sandbox.Pruner); ok {
		if left, err := pruner.Prune(t.Context(), true); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

func testRenew(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	renewer, ok := need[sandbox.Renewer](t, d)
	if !ok {
		return
	}
	spec.TTL = time.Hour
	s := create(t, d, spec)
	for _, deadline := range []time.Time{time.Now().Add(2 * time.Hour), {}} {
		if err := renewer.Renew(t.Context(), s, deadline); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		found, err := d.Get(t.Context(), s.ID)
		if err != nil || !found.Deadline.Equal(deadline) {
			t.Errorf("the deadline is %v, want %v; %v", found.Deadline, deadline, err)
		}
	}
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	if status, body := post(t, s, key, "/v1/renew", `{"ttl_seconds": 60}`); status != http.StatusConflict || !strings.Contains(body, "runtimectl renew") {
		t.Errorf("a renewal that the driver does not know of: %d, %s", status, body)
	}
	works(t, s)
}

func testStop(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	starter, ok := need[sandbox.Starter](t, d)
	if !ok {
		return
	}
	s := create(t, d, spec)
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, key, "echo kept > file")
	if err := starter.Stop(t.Context(), s, 5*time.Second); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if found, err := d.Get(t.Context(), s.ID); err != nil || found.State != sandbox.Stopped {
		t.Errorf("stopped: %+v, %v", found, err)
	}
	if err := starter.Start(t.Context(), s); err != nil {
		t.Fatalf("Start: %v", err)
	}
	works(t, s)
	if _, body := run(t, s, key, "cat file"); !strings.Contains(body, "kept") {
		t.Errorf("the file after Stop and Start: %s", body)
	}
}

func testFiles(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	files, ok := need[sandbox.Files](t, d)
	if !ok {
		return
	}
	ctx := t.Context()
	s := create(t, d, spec)
	dir, err := files.WorkDir(ctx, s)
	if err != nil || !path.IsAbs(dir) {
		t.Fatalf("WorkDir: %q, %v", dir, err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "in.txt", Mode: 0o644, Size: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := files.CopyIn(ctx, s, dir, &archive); err != nil {
		t.Fatalf("CopyIn: %v", err)
	}
	file := path.Join(dir, "in.txt")
	if info, err := files.Stat(ctx, s, file); err != nil || info.Name != "in.txt" || info.Size != 5 || !info.Mode.IsRegular() {
		t.Errorf("Stat: %+v, %v", info, err)
	}
	out, err := files.CopyOut(ctx, s, file)
	if err != nil {
		t.Fatalf("CopyOut: %v", err)
	}
	defer func() { _ = out.Close() }()
	in := tar.NewReader(out)
	header, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(in); err != nil || header.Name != "in.txt" || string(data) != "hello" {
		t.Errorf("copied out: %q, %q, %v", header.Name, data, err)
	}
}

func testLogs(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	logger, ok := need[sandbox.Logger](t, d)
	if !ok {
		return
	}
	s := create(t, d, spec)
	var logs bytes.Buffer
	if err := logger.Logs(t.Context(), s, sandbox.LogOptions{Tail: new(10)}, &logs, &logs); err != nil || logs.Len() == 0 {
		t.Errorf("Logs: %q, %v", logs.String(), err)
	}
}

// members returns the sandboxes that wait in a pool.
func members(t *testing.T, d sandbox.Driver, pool string) (ready []*sandbox.Sandbox) {
	t.Helper()
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Pool == pool && s.State == sandbox.Ready {
			ready = append(ready, s)
		}
	}
	return ready
}

// fill returns when size sandboxes wait in a pool, and which.
func fill(t *testing.T, d sandbox.Driver, pool *sandbox.Pool, name string, size int) (ready []*sandbox.Sandbox) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var filling sync.WaitGroup
	filling.Go(func() { pool.Run(ctx, time.Second) })
	for ready = members(t, d, name); len(ready) < size; ready = members(t, d, name) {
		<-time.After(20 * time.Millisecond)
	}
	stop()
	filling.Wait()
	return ready
}

// Many claimers of one pool get a sandbox each, and none gets another's.
func testPool(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	if _, ok := need[sandbox.Warmer](t, d); !ok {
		return
	}
	const size, claimers = 3, 6
	pool, err := sandbox.NewPool(t.Context(), d, "drivertest", spec, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() int { return len(members(t, d, "drivertest")) }
	fill(t, d, pool, "drivertest", size)
	instances := make([]string, claimers)
	var claiming sync.WaitGroup
	for i := range claimers {
		claiming.Go(func() {
			own := spec
			own.Key = fmt.Sprint("claimer ", i)
			s, _, err := pool.Claim(t.Context(), own)
			if err != nil || s.ID != sandbox.ID(own.Key) || s.Pool != "" {
				t.Errorf("Claim: %+v, %v", s, err)
				return
			}
			instances[i] = s.Instance
		})
	}
	claiming.Wait()
	owner := map[string]int{}
	for i, instance := range instances {
		if other, taken := owner[instance]; taken {
			t.Errorf("claimers %d and %d got one sandbox", other, i)
		}
		owner[instance] = i
		s, err := d.Get(t.Context(), sandbox.ID(fmt.Sprint("claimer ", i)))
		if err != nil {
			t.Fatal(err)
		}
		works(t, s)
		if err := d.Delete(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	if err := pool.Drain(t.Context()); err != nil || waiting() != 0 {
		t.Errorf("Drain: %v, %d left", err, waiting())
	}
}

func testPrune(t *testing.T, d sandbox.Driver, spec sandbox.Spec) {
	pruner, ok := need[sandbox.Pruner](t, d)
	if !ok {
		return
	}
	kept := create(t, d, spec)
	spec.TTL = 10 * time.Second // longer than a creation takes on a busy machine
	over := create(t, d, spec)
	<-time.After(time.Until(over.Deadline) + 100*time.Millisecond)
	for _, dryRun := range []bool{true, false} {
		removed, err := pruner.Prune(t.Context(), dryRun)
		if err != nil || len(removed) != 1 || removed[0].ID != over.ID || removed[0].Reason == "" {
			t.Errorf("Prune: %+v, %v, want %s", removed, err, over.ID)
		}
	}
	gone(t, d, over.ID)
	works(t, kept)
}
