package docker_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// userOf is the user of a sandbox as its container's arguments have it.
func userOf(f *dockertest.Engine, s *sandbox.Sandbox) string {
	f.Lock()
	defer f.Unlock()
	cmd := strings.Join(f.Containers[s.Instance].Config.Cmd, " ")
	_, rest, _ := strings.Cut(cmd, "--user-id ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// Sandboxes made at once, by two processes and two controllers, from pools or not,
// have different user ids, which their labels and servers agree about.
func TestUserIDsAreDistinct(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := t.TempDir()
	shared := func(c *docker.Config) { c.StateDir = state; c.UserIDs = docker.IDRange{First: 500, Last: 511} }
	hosts := []*docker.Host{fakeHost(t, f, shared), fakeHost(t, f, shared)}
	pool := newPool(t, hosts[0], sandbox.Spec{Image: "i"}, 4)
	fillOnce(t, hosts[0], pool, 4)
	all := make([]*sandbox.Sandbox, 12)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			var err error
			if i%3 == 0 {
				all[i], _, err = pool.Claim(t.Context(), sandbox.Spec{Image: "i"})
			} else {
				all[i], err = hosts[i%2].Create(t.Context(), sandbox.Spec{Image: "i"})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	seen := map[string]bool{}
	for _, s := range all {
		id := userOf(f, s)
		if s.User != "agent:"+id || seen[id] {
			t.Errorf("sandbox %s is %s, its server has --user-id %s, which is another's: %v", s.ID, s.User, id, seen[id])
		}
		seen[id] = true
	}
	if _, err := hosts[0].Create(t.Context(), sandbox.Spec{Image: "i"}); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "--uid-range") {
		t.Errorf("with all ids in use: got %v, want ErrConflict", err)
	}
	// A stopped one keeps its id, a removed one gives it back.
	if err := hosts[0].Stop(t.Context(), all[1], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := hosts[0].Create(t.Context(), sandbox.Spec{Image: "i"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("with one stopped: got %v, want ErrConflict", err)
	}
	if err := hosts[0].Delete(t.Context(), all[1]); err != nil {
		t.Fatal(err)
	}
	s, err := hosts[1].Create(t.Context(), sandbox.Spec{Image: "i"})
	if err != nil || s.User != all[1].User {
		t.Errorf("with one removed: got %v, %v, want its id %s", s, err, all[1].User)
	}
}

// Another controller's sandboxes count, and so do creations of this one that have
// no container yet.
func TestUserIDsOfOthers(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	two := func(c *docker.Config) { c.UserIDs = docker.IDRange{First: 500, Last: 501} }
	one, other := fakeHost(t, f, two), fakeHost(t, f, two)
	a := create(t, one, sandbox.Spec{Image: "i"})
	b, err := other.Create(t.Context(), sandbox.Spec{Image: "i"})
	if err != nil || a.User == b.User {
		t.Errorf("two controllers: %s and %s, %v", a.User, b.User, err)
	}
}

// A state file that a crash of the host tore stops no creation.
func TestUserIDsBesideTornNote(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.StateDir = state })
	dir := filepath.Join(state, "sandboxes", "0123456789ab")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "claim"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "i"}); err != nil {
		t.Error(err)
	}
	if removed, err := h.Prune(t.Context(), false); err != nil || len(removed) != 1 || removed[0].ID != "0123456789ab" {
		t.Errorf("Prune: got %v, %v, want the directory removed", removed, err)
	}
}

// A sandbox whose state file cannot be read is listed and can be removed, and keeps no
// other from being made, listed or pruned.
func TestTornNote(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	h := fakeHost(t, dockertest.New(t), func(c *docker.Config) { c.StateDir = state })
	torn := create(t, h, sandbox.Spec{Image: "i", Key: "torn"})
	testhelp.WriteFile(t, filepath.Join(state, "sandboxes", torn.ID, "claim"), "", 0o600)
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "i", Name: "other"}); err != nil {
		t.Errorf("another: %v", err)
	}
	if all, err := h.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("List: got %v, %v, want both", all, err)
	}
	// Whether its creation is complete is unknown, so only Delete removes it.
	if removed, err := h.Prune(t.Context(), false); err == nil || len(removed) != 0 {
		t.Errorf("Prune: got %v, %v, want the state file's error", removed, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "i", Key: "torn"}); err == nil {
		t.Error("its key gave a sandbox")
	}
	if err := h.Delete(t.Context(), torn); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if all, err := h.List(t.Context()); err != nil || len(all) != 1 || all[0].Name != "other" {
		t.Errorf("List: got %v, %v, want the other", all, err)
	}
}

// The same key gives the same sandbox although its id was picked.
func TestUserIDIsNoPartOfTheHash(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, dockertest.New(t))
	a := create(t, h, sandbox.Spec{Image: "i", Key: "k"})
	if b, err := h.Create(t.Context(), sandbox.Spec{Image: "i", Key: "k"}); err != nil || a.ID != b.ID || a.User != b.User {
		t.Errorf("got %v and %v, %v", a, b, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "i", Key: "k", UserID: 1000}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("with an id asked for: got %v, want ErrConflict", err)
	}
}

func TestWhatDecidesTheUserID(t *testing.T) {
	t.Parallel()
	mine := t.TempDir()
	owner := fmt.Sprint(os.Getuid())
	if os.Getuid() == 0 {
		owner = "1000"
	}
	for _, tt := range []struct {
		name string
		spec sandbox.Spec
		want string // "" for one of the range
	}{
		{"nothing", sandbox.Spec{}, ""},
		{"another name", sandbox.Spec{User: "me"}, ""},
		{"--user", sandbox.Spec{UserID: 77}, "77"},
		{"root", sandbox.Spec{User: "root"}, "0"},
		{"a mount that cannot be written", sandbox.Spec{Mounts: []sandbox.Mount{{Source: mine, Target: "/data", ReadOnly: true}}}, ""},
		{"a mount", sandbox.Spec{Mounts: []sandbox.Mount{{Source: mine, Target: "/data"}}}, owner},
		{"--user and a mount", sandbox.Spec{UserID: 77, Mounts: []sandbox.Mount{{Source: mine, Target: "/data"}}}, "77"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := dockertest.New(t)
			h := fakeHost(t, f)
			tt.spec.Image = "i"
			s := create(t, h, tt.spec)
			got := userOf(f, s)
			inRange := len(got) == 5 && got >= "40000" && got <= "59999"
			if (tt.want == "" && !inRange) || (tt.want != "" && got != tt.want) {
				t.Errorf("got %s, want %s", got, cmp.Or(tt.want, "40000-59999"))
			}
			_, label, _ := strings.Cut(s.User, ":")
			if label != got {
				t.Errorf("the label says %s and the server gets %s", s.User, got)
			}
		})
	}
}

func TestParseIDRange(t *testing.T) {
	t.Parallel()
	if r, err := docker.ParseIDRange("70000-70001"); err != nil || r != (docker.IDRange{First: 70000, Last: 70001}) {
		t.Errorf("got %v, %v", r, err)
	}
	for _, text := range []string{"", "5", "-", "5-", "-5", "0-9", "9-5", "a-b", "1-99999999999999999999", "1-2147483647", "1-2-3", " 1-2"} {
		if r, err := docker.ParseIDRange(text); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: got %v, %v, want ErrInvalid", text, r, err)
		}
	}
	if _, err := docker.Open(docker.Config{StateDir: t.TempDir(), Agent: &fakeAgent{}, UserIDs: docker.IDRange{First: 5, Last: 4}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Open: got %v, want ErrInvalid", err)
	}
	// Ids that mean no user are left out.
	if id, err := (docker.IDRange{First: 65534, Last: 65536}).Pick(nil); err != nil || id != 65536 {
		t.Errorf("got %d, %v, want 65536", id, err)
	}
}

func TestSharedQuotas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernel/pty/max": "4096\n", "kernel/pty/reserve": "1024\n", "kernel/pty/nr": "7\n",
		"fs/inotify/max_user_instances": "128\n", "fs/file-max": "100000\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	users := map[int]int{0: 2, 1000: 3, 40001: 1, 40002: 1}
	text := func(findings []docker.Finding) string {
		var all []string
		for _, f := range findings {
			all = append(all, f.What+": "+f.So)
		}
		return strings.Join(all, "\n")
	}
	got := text(docker.SharedQuotas(system.Info{}, users, dir))
	for _, want := range []string{
		"7 of 4096 are in use: a sandbox has at most 128: raise kernel.pty.max where there are more than 24 sandboxes",
		"2 run commands as root: they share inotify instances (128)", "3 have the user id 1000", "100000 open files at most",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	if strings.Contains(got, "40001") {
		t.Errorf("one that shares nothing: got\n%s", got)
	}
	got = text(docker.SharedQuotas(system.Info{SecurityOptions: []string{"name=rootless"}}, users, dir))
	if !strings.Contains(got, "cannot limit them: one sandbox can take all") || strings.Contains(got, "this host's root") {
		t.Errorf("rootless: got\n%s", got)
	}
	if found := docker.SharedQuotas(system.Info{}, nil, t.TempDir()); len(found) != 0 {
		t.Errorf("where nothing can be read: got %v", found)
	}
}

func TestLimitsTerminals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		info system.Info
		want bool
	}{
		{system.Info{}, true},
		{system.Info{DefaultRuntime: "runc", SecurityOptions: []string{"name=seccomp,profile=default", "name=apparmor"}}, true},
		{system.Info{DefaultRuntime: "runsc"}, false},
		{system.Info{SecurityOptions: []string{"name=selinux"}}, false},
		{system.Info{SecurityOptions: []string{"name=userns"}}, false},
		{system.Info{SecurityOptions: []string{"name=rootless"}}, false},
	} {
		if got := docker.LimitsTerminals(tt.info); got != tt.want {
			t.Errorf("%+v: got %v", tt.info, got)
		}
	}
}
