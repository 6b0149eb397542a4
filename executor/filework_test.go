package executor_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// Where no work ends, callers that wait are told so; work begins again once other
// work has ended.
func TestFileWorkStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work := executor.NewFileWork()
		answers := make(chan struct{})
		for range executor.MaxFileWork {
			go func() {
				_, _ = executor.OnFiles(t.Context(), work, func() (int, error) { <-answers; return 0, nil })
			}()
		}
		synctest.Wait()
		one := func() (int, error) { return 1, nil }
		_, err := executor.OnFiles(t.Context(), work, one)
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Status != http.StatusTooManyRequests {
			t.Errorf("got %v", err)
		}
		close(answers)
		if n, err := executor.OnFiles(t.Context(), work, one); n != 1 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

// A panic of file work is its caller's, and the work has ended.
func TestFilePanic(t *testing.T) {
	t.Parallel()
	work := executor.NewFileWork()
	for range executor.MaxFileWork + 1 {
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("got %v", got)
				}
			}()
			_, _ = executor.OnFiles(t.Context(), work, func() (int, error) { panic("broken") })
		}()
	}
}

// A large file is read and written once there is memory for it: the size of the file, and for
// the answer half of its JSON. Otherwise nothing is done.
func TestFileMemory(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{MaxFile: 8 << 20})
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		testhelp.WriteFile(t, path, content, 0o600)
		return path
	}
	const line = "\x01\x01\x01\x01a\n" // 27 bytes of JSON
	small, plain := write("small", "x"), write("plain", strings.Repeat("x", 2<<20))
	much := write("much", strings.Repeat("\x01\x01\x01\x01a\n", 15<<10)) // less than the size of a large file
	control := write("control", strings.Repeat(line, 1<<18))
	refused := api.TooMany("no memory")
	for name, c := range map[string]struct {
		action api.Action
		want   []int64
	}{
		"small":   {api.ReadAction{Path: small, End: -1}, nil},
		"much":    {api.ReadAction{Path: much, End: -1}, []int64{15 << 10 * 27 / 2}},
		"plain":   {api.ReadAction{Path: "plain", End: -1}, []int64{2 << 20}},
		"control": {api.ReadAction{Path: control, End: -1}, []int64{6 << 18, 27 << 17}},
		"patch": {api.EditAction{Command: "apply_patch", ImplSource: "oh_aci", Patch: new(
			"*** Begin Patch\n*** Delete File: " + plain + "\n*** Update File: small\n@@\n-x\n+y\n*** End Patch\n")}, []int64{2<<20 + 1}},
		"write": {api.WriteAction{Path: plain, Content: "y", End: -1}, []int64{2 << 20}},
	} {
		var taken []int64
		watch := api.Watch{Take: func(n int64) error {
			if taken = append(taken, n); len(taken) == len(c.want) {
				return refused
			}
			return nil
		}}
		if _, err := e.Watch(t.Context(), api.Request{Action: c.action}, watch); len(c.want) > 0 && !errors.Is(err, refused) {
			t.Errorf("%s: got %v, want the refusal", name, err)
		}
		if !slices.Equal(taken, c.want) {
			t.Errorf("%s: got %d, want %d", name, taken, c.want)
		}
	}
	if data, err := os.ReadFile(plain); err != nil || len(data) != 2<<20 {
		t.Errorf("got %d bytes, %v: it was written without memory", len(data), err)
	}
	o, err := e.Do(t.Context(), api.Request{Action: api.ReadAction{Path: write("too much", strings.Repeat(line, 1<<20)), End: -1}})
	if failed, ok := o.(api.ErrorObservation); err != nil || !ok || failed.Code != "file_too_large" {
		t.Errorf("got %.200v, %v: want a refusal of an answer that is too large", o, err)
	}
}

// Work with a large file keeps its memory until it has ended, also where its caller has left.
func TestFileMemoryUntilLoaded(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{MaxFile: 8 << 20})
	path := filepath.Join(dir, "large")
	testhelp.WriteFile(t, path, make([]byte, 2<<20), 0o600)
	holds := make(chan string, 2)
	watch := api.Watch{Take: func(int64) error { return nil }, Hold: func() func() {
		holds <- "held"
		return func() { holds <- "released" }
	}}
	loading, loaded, answered := make(chan struct{}), make(chan struct{}), make(chan error)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		_, err := e.WithFiles(ctx, watch, path, func() api.Observation {
			close(loading)
			<-loaded
			return api.ReadObservation{}
		})
		answered <- err
	}()
	<-loading
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := <-holds; got != "held" || len(holds) > 0 {
		t.Errorf("got %s, %d more", got, len(holds))
	}
	close(loaded)
	if got := <-holds; got != "released" {
		t.Errorf("got %s", got)
	}
}

// The size of a file that the user may not see is not found out, and takes no memory.
func TestFileMemoryOfOthers(t *testing.T) {
	t.Parallel()
	u := other(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t), MaxFile: 8 << 20})
	closed := filepath.Join(testhelp.PublicDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(closed, "large")
	testhelp.WriteFile(t, path, make([]byte, 2<<20), 0o644)
	for _, a := range []api.Action{
		api.ReadAction{Path: path, End: -1},
		api.WriteAction{Path: path, Content: "x", End: -1},
		api.EditAction{Path: path, Command: "create", ImplSource: "oh_aci", FileText: new("x")},
		api.EditAction{Command: "apply_patch", ImplSource: "oh_aci", Patch: new("*** Begin Patch\n*** Delete File: " + path + "\n*** End Patch\n")},
	} {
		_, err := e.Watch(t.Context(), api.Request{Action: a}, api.Watch{Take: func(n int64) error {
			t.Errorf("%+v: it takes %d bytes of memory", a, n)
			return nil
		}})
		if err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
}
