package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

func TestMain(m *testing.M) {
	removeHome, err := drivertest.EmptyHome()
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	removeHome()
	os.Exit(code)
}

func open(t *testing.T, cfg local.Config) *local.Driver {
	t.Helper()
	d, err := local.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// lock takes a lock of the state directory, as another process does.
func lock(t *testing.T, dir, name string) (root *os.Root, unlock func()) {
	t.Helper()
	root, err := os.OpenRoot(filepath.Join(dir, "local"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	if unlock, err = filelock.TryLock(root, name); err != nil {
		t.Fatal(err)
	}
	return root, unlock
}

func TestDriver(t *testing.T) {
	t.Parallel()
	server := drivertest.BuildServer(t)
	openWith := func(t *testing.T, server func() (string, error)) (*local.Driver, string) {
		t.Helper()
		dir, err := os.MkdirTemp("/tmp", "local-") //nolint:usetesting // short: sockets are in it
		if err != nil {
			t.Fatal(err)
		}
		d, err := local.Open(local.Config{StateDir: dir, Agent: agent.Agent{}, Server: server})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			all, err := d.List(context.WithoutCancel(t.Context()))
			for _, s := range all {
				t.Errorf("sandbox %s is left", s.ID)
				_ = d.Delete(context.WithoutCancel(t.Context()), s)
			}
			if err := fmt.Sprint(err, d.Close(), os.RemoveAll(dir)); err != "<nil> <nil> <nil>" {
				t.Error(err)
			}
		})
		return d, dir
	}
	open := func(t *testing.T) (*local.Driver, string) {
		t.Helper()
		return openWith(t, func() (string, error) { return server, nil })
	}
	t.Run("next server", func(t *testing.T) {
		t.Parallel()
		present := server
		d, _ := openWith(t, func() (string, error) { return present, nil })
		next := filepath.Join(filepath.Dir(server), "next-server")
		if err := os.Link(server, next); err != nil {
			t.Fatal(err)
		}
		testNextServer(t, d, server, func() string { present = next; return next })
	})
	t.Run("same key", func(t *testing.T) {
		t.Parallel()
		one, _ := open(t)
		other, _ := open(t)
		testSameKey(t, one, other)
	})
	t.Run("daemons", func(t *testing.T) {
		t.Parallel()
		d, dir := open(t)
		testDaemons(t, d, dir)
	})
	t.Run("working directory", func(t *testing.T) {
		t.Parallel()
		d, _ := open(t)
		testWorkDir(t, d)
	})
	drivertest.Suite{Open: func(t *testing.T) sandbox.Driver { t.Helper(); d, _ := open(t); return d }}.Run(t)
}

// A look at a stopped sandbox, which locks a file of it for a moment, does not make its
// start fail.
func TestStartWhileLooked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir, Agent: agent.Agent{}, Server: func() (string, error) { return "/bin/false", nil }})
	id := sandbox.ID("one")
	box := filepath.Join(dir, "local", id)
	if err := os.MkdirAll(filepath.Join(box, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"facts": `{"name": "one", "pid": 2}`, "key": "k", "alive": ""} {
		testhelp.WriteFile(t, filepath.Join(box, name), text, 0o600)
	}
	look, err := os.Open(filepath.Join(box, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	if err := filelock.Flock(look, syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = look.Close() })
	err = d.Start(t.Context(), &sandbox.Sandbox{ID: id})
	if _, ok := errors.AsType[*sandbox.StartError](err); !ok {
		t.Errorf("got %v, want that the program ended", err)
	}
}

// A sandbox whose facts name no process ends none.
func TestStopWithoutProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir})
	id := sandbox.ID("one")
	box := filepath.Join(dir, "local", id)
	if err := os.MkdirAll(box, 0o700); err != nil {
		t.Fatal(err)
	}
	testhelp.WriteFile(t, filepath.Join(box, "facts"), `{"name": "one"}`, 0o600)
	server, err := os.Create(filepath.Join(box, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := filelock.Flock(server, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), &sandbox.Sandbox{ID: id}, time.Hour); err == nil {
		t.Error("Stop did not fail")
	}
}

// Files left in a sandbox keep no user from removing it.
func TestDeleteReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir})
	id := sandbox.ID("one")
	for i, mode := range []os.FileMode{0o500, 0} {
		closed := filepath.Join(dir, "local", id, "work", fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(closed, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		testhelp.WriteFile(t, filepath.Join(closed, "in", "file"), "", 0o400)
		for _, name := range []string{filepath.Join(closed, "in"), closed} {
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(name, 0o700) })
		}
	}
	if err := d.Delete(t.Context(), &sandbox.Sandbox{ID: id}); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "local", id)); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

// Damaged facts of one sandbox keep no other from being listed, found or pruned, and
// the sandbox can be seen and removed.
func TestDamagedFacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir})
	damaged, over, fine := sandbox.ID("damaged"), sandbox.ID("over"), sandbox.ID("fine")
	for id, text := range map[string]string{
		damaged: `{"name": "dam`, over: `{"name": "over", "deadline": "2026-01-01T00:00:00Z"}`, fine: `{"name": "fine"}`,
	} {
		box := filepath.Join(dir, "local", id)
		if err := errors.Join(os.MkdirAll(box, 0o700), os.WriteFile(filepath.Join(box, "facts"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("List: %v, %v, want three", all, err)
	}
	if s, err := d.Get(t.Context(), "fine"); err != nil || s.ID != fine {
		t.Errorf("Get of the other: %v, %v", s, err)
	}
	s, err := d.Get(t.Context(), damaged)
	if err != nil || s.Name != damaged || !strings.Contains(s.Detail, "reading the facts of sandbox "+damaged) {
		t.Fatalf("Get of the damaged one: %+v, %v", s, err)
	}
	removed, err := d.Prune(t.Context(), false)
	if len(removed) != 1 || removed[0].ID != over || err == nil || !strings.Contains(err.Error(), "runtimectl rm "+damaged) {
		t.Errorf("Prune: %v, %v, want one removed and the damaged one reported", removed, err)
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != fine {
		t.Errorf("List at last: %v, %v", all, err)
	}
}

// Waiting for another caller's work on a sandbox ends with the context.
func TestLockWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir})
	id := sandbox.ID("one")
	_, unlock := lock(t, dir, ".lock-"+id)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Delete(ctx, &sandbox.Sandbox{ID: id}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

// A directory without facts is left alone while its sandbox is being created.
func TestPruneDuringCreation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, local.Config{StateDir: dir})
	id := sandbox.ID("one")
	root, unlock := lock(t, dir, ".id-"+id)
	if err := root.Mkdir(id, 0o700); err != nil {
		t.Fatal(err)
	}
	if removed, err := d.Prune(t.Context(), false); err != nil || len(removed) != 0 {
		t.Errorf("during the creation: %v, %v", removed, err)
	}
	unlock()
	if removed, err := d.Prune(t.Context(), false); err != nil || len(removed) != 1 {
		t.Errorf("after its creator died: %v, %v", removed, err)
	}
}

// testSameKey checks that sandboxes of one key in two directories have nothing in common.
func testSameKey(t *testing.T, one, other *local.Driver) {
	t.Helper()
	var made []*sandbox.Sandbox
	for _, d := range []*local.Driver{one, other} {
		s, err := d.Create(t.Context(), sandbox.Spec{Key: "the same"})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, s)
	}
	if err := one.Delete(t.Context(), made[0]); err != nil {
		t.Error(err)
	}
	if s, err := other.Get(t.Context(), made[1].ID); err != nil || s.State != sandbox.Ready {
		t.Errorf("the other one: %v, %v", s, err)
	}
	if err := other.Delete(t.Context(), made[1]); err != nil {
		t.Error(err)
	}
}

// testNextServer checks that a sandbox has the server that it was made with until it is started again, and
// then the one that install has put in its place.
func testNextServer(t *testing.T, d *local.Driver, first string, install func() (next string)) {
	t.Helper()
	s, err := d.Create(t.Context(), sandbox.Spec{Key: "next"})
	if err != nil {
		t.Fatal(err)
	}
	running := func() string {
		t.Helper()
		if s, err = d.Get(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		program, err := os.Readlink("/proc/" + strings.TrimPrefix(s.Detail, "process ") + "/exe")
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	next := install()
	if got := running(); got != first {
		t.Errorf("before its end it runs %s, want %s", got, first)
	}
	if err := errors.Join(d.Stop(t.Context(), s, time.Minute), d.Start(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	if got := running(); got != next {
		t.Errorf("started again it runs %s, want %s", got, next)
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// testDaemons checks that a process in a session of its own, whose parent ended, ends
// with its sandbox, also where the server was killed or the facts are damaged before.
func testDaemons(t *testing.T, d *local.Driver, dir string) {
	t.Helper()
	for _, how := range []string{"stop", "rm", "killed", "damaged"} {
		s, err := d.Create(t.Context(), sandbox.Spec{Key: how})
		if err != nil {
			t.Fatal(err)
		}
		key, err := s.Key()
		if err != nil {
			t.Fatal(err)
		}
		c, err := agent.Client(s.Dial, key)
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{
			Command: `(setsid sh -c 'echo $$ > daemon.tmp; mv daemon.tmp daemon; exec sleep 1000' >/dev/null 2>&1 </dev/null &); until [ -e daemon ]; do sleep 0.01; done; cat daemon`, Blocking: true,
		}})
		c.Close()
		run, ok := o.(api.RunObservation)
		pid, convErr := strconv.Atoi(strings.TrimSpace(run.Content))
		if err != nil || !ok || convErr != nil {
			t.Fatalf("starting a daemon: %v, %v, %v", o, err, convErr)
		}
		box := filepath.Join(dir, "local", s.ID)
		switch how {
		case "stop":
			err = d.Stop(t.Context(), s, time.Minute)
		case "killed":
			server, _ := strconv.Atoi(strings.TrimPrefix(s.Detail, "process "))
			err = syscall.Kill(server, syscall.SIGKILL)
		case "damaged":
			err = os.WriteFile(filepath.Join(box, "facts"), nil, 0o600)
		}
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if how != "stop" {
			err = d.Delete(t.Context(), s)
		}
		if err != nil {
			t.Errorf("%s: %v", how, err)
		}
		testhelp.Eventually(t, func() bool { // a killed process may need a moment to end
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			return len(environ) == 0 // a zombie has none
		}, "%s: process %d ends", how, pid)
		if err := d.Delete(t.Context(), s); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// The directory of servers' keys is closed to other users, and refused where they share it.
func TestStateIsClosedToOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, want := range map[fs.FileMode]string{0o777: "", fs.ModeSticky | 0o777: "other users share it; choose another with --state-dir"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		d, err := local.Open(local.Config{StateDir: dir})
		if err == nil {
			err = d.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %v: got %v, want %q", mode, err, want)
		}
		if info, err := os.Stat(dir); want == "" && (err != nil || info.Mode().Perm() != 0o700) {
			t.Errorf("got %v, %v", info, err)
		}
	}
}

// A setting that only an engine has is refused, with the way on.
func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	d := open(t, local.Config{StateDir: t.TempDir()})
	for want, spec := range map[string]sandbox.Spec{
		"an image": {Image: "debian"}, "a memory limit": {Memory: 1 << 30}, "a disk limit": {Disk: 1 << 30}, "a network, a processor limit": {Network: "none", CPUs: 1},
	} {
		want = "the driver of local processes cannot honour " + want + "; leave that out"
		if _, err := d.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := d.Create(t.Context(), sandbox.Spec{WorkDir: "here"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a relative directory: got %v", err)
	}
}

// A sandbox can work in a directory of this machine, which stays when the sandbox goes.
func testWorkDir(t *testing.T, d *local.Driver) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made")
	s, err := d.Create(t.Context(), sandbox.Spec{WorkDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		key, err := s.Key()
		if err != nil {
			t.Fatal(err)
		}
		c, err := agent.Client(s.Dial, key)
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "pwd; echo x >> file", Blocking: true}})
		c.Close()
		if run, ok := o.(api.RunObservation); err != nil || !ok || strings.TrimSpace(run.Content) != dir {
			t.Errorf("got %v, %v, want %s", o, err, dir)
		}
		if got, err := d.WorkDir(t.Context(), s); err != nil || got != dir {
			t.Errorf("WorkDir: got %s, %v", got, err)
		}
		if err := errors.Join(d.Stop(t.Context(), s, time.Minute), d.Start(t.Context(), s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "x\nx\n" {
		t.Errorf("got %q, %v", data, err)
	}
}
