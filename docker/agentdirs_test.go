package docker_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// realDir is a new directory by a path without links.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

// TestMountThroughLinkOfAgent refuses links in a directory that a sandbox mounts
// writable, or mounted so, although they belong to this process's user: agents
// often have that user's id.
func TestMountThroughLinkOfAgent(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	share, readOnly, elsewhere := dir+"/share", dir+"/read-only", dir+"/elsewhere"
	mkdirs(t, share, share+"/d", share+"/d/e", readOnly, readOnly+"/sub", elsewhere, elsewhere+"/sub")
	engine := dockertest.New(t)
	h := fakeHost(t, engine)
	ctx := t.Context()
	create := func(source string) (*sandbox.Sandbox, error) {
		return h.Create(ctx, sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: source, Target: "/data"}}})
	}
	links := map[string]string{ // by where they are
		share + "/sub": elsewhere, share + "/relative": "../elsewhere", share + "/d/e/deep": "../../../elsewhere/sub",
		share + "/inside": "d", dir + "/two": share + "/sub", dir + "/over": "share/d/../../share/relative/sub",
	}
	for link, target := range links {
		symlink(t, target, link)
	}
	symlink(t, elsewhere, readOnly+"/link")
	symlink(t, "share", dir+"/ours")
	symlink(t, dir, dir+"/up")

	// As long as no sandbox has mounted it, these are the user's links. Each is for a
	// controller of its own, because one of them leads into a directory with another.
	for link := range links {
		spec := sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: link, Target: "/data"}}}
		if _, err := fakeHost(t, dockertest.New(t)).Create(ctx, spec); err != nil {
			t.Fatalf("before: %s: %v", link, err)
		}
	}
	s, err := h.Create(ctx, sandbox.Spec{Image: "debian", Key: "a", Mounts: []sandbox.Mount{
		{Source: share, Target: "/share"}, {Source: readOnly, Target: "/ro", ReadOnly: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for link := range links {
			if _, err := create(link); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), share) {
				t.Errorf("%s: %s: got %v, want ErrInvalid that names %s", when, link, err, share)
			}
		}
		for _, fine := range []string{readOnly + "/link", dir + "/ours", dir + "/ours/d", dir + "/up/share/d/e"} {
			if s, err := create(fine); err != nil {
				t.Errorf("%s: %s: %v", when, fine, err)
			} else if err := h.Delete(ctx, s); err != nil {
				t.Error(err)
			}
		}
	}
	check("mounted")
	if err := h.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	check("mounted once")
}

// TestMountThroughLinkOfForeignContainer does the same for containers that other
// controllers, or people, have made, whatever path they were given.
func TestMountThroughLinkOfForeignContainer(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	mkdirs(t, dir+"/share", dir+"/elsewhere")
	symlink(t, "share", dir+"/name")
	symlink(t, "../elsewhere", dir+"/share/sub")
	engine := dockertest.New(t)
	engine.Foreign = []container.Summary{{ID: "f", Names: []string{"/foreign"}, Mounts: []container.MountPoint{
		{Type: mount.TypeBind, Source: dir + "/missing", RW: true}, {Type: mount.TypeBind, Source: dir + "/name", Destination: "/x", RW: true},
	}}}
	h := fakeHost(t, engine)
	spec := sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: dir + "/share/sub", Target: "/data"}}}
	if _, err := h.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	engine.Foreign[0].Mounts[1].RW = false
	if _, err := h.Create(t.Context(), spec); err != nil {
		t.Errorf("mounted read-only: %v", err)
	}
	engine.SetDown(true)
	if _, err := h.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrUnknown) {
		t.Errorf("without the engine: got %v, want ErrUnknown", err)
	}
}

func TestMountThroughLinkOfOtherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make links of other users")
	}
	dir := realDir(t)
	mkdirs(t, dir+"/share", dir+"/elsewhere", dir+"/elsewhere/d")
	for _, link := range []string{"last", "middle"} {
		symlink(t, "../elsewhere", dir+"/share/"+link)
		if err := os.Lchown(dir+"/share/"+link, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	h := fakeHost(t, dockertest.New(t))
	for _, source := range []string{"/share/last", "/share/middle/d", "/share/middle/../share/last"} {
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: dir + source, Target: "/data"}}})
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "belongs to user 1000") {
			t.Errorf("%s: got %v, want ErrInvalid with the owner", source, err)
		}
		if _, err := h.Open(t.Context(), dir+source); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("opening %s: got %v, want ErrInvalid", source, err)
		}
	}
}

// TestOpenThroughLinkOfAgent is about files that a specification names, such as
// lists of variables.
func TestOpenThroughLinkOfAgent(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	mkdirs(t, dir+"/share")
	for name, text := range map[string]string{"/secret": "TOKEN=x", "/share/file": "A=b"} {
		testhelp.WriteFile(t, dir+name, text, 0o600)
	}
	symlink(t, "../secret", dir+"/share/env")
	symlink(t, "secret", dir+"/env")
	h := fakeHost(t, dockertest.New(t))
	create(t, h, sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: dir + "/share", Target: "/x"}}})
	if f, err := h.Open(t.Context(), dir+"/share/env"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("got %v, %v, want ErrInvalid", f, err)
	}
	for name, want := range map[string]string{"/env": "TOKEN=x", "/share/file": "A=b"} {
		f, err := h.Open(t.Context(), dir+name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if data, err := io.ReadAll(f); err != nil || string(data) != want {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
		f.Close()
	}
	if _, err := h.Open(t.Context(), dir+"/missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no such file", err)
	}
}

// TestMountInMount refuses a target that leads through a link in another mount.
func TestMountInMount(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	mkdirs(t, dir+"/outer", dir+"/outer/d", dir+"/inner")
	symlink(t, "/etc", dir+"/outer/link")
	symlink(t, "d", dir+"/outer/d/link")
	h := fakeHost(t, dockertest.New(t))
	for target, want := range map[string]error{
		"/w/link": sandbox.ErrInvalid, "/w/link/x": sandbox.ErrInvalid, "/w/d/link/y": sandbox.ErrInvalid, "/w/d": nil, "/w/d/new/one": nil,
	} {
		for _, mounts := range [][]sandbox.Mount{
			{{Source: dir + "/outer", Target: "/w"}, {Source: dir + "/inner", Target: target}},
			{{Source: dir + "/inner", Target: target}, {Source: dir + "/outer", Target: "/w"}},
		} {
			s, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: mounts})
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", target, err, want)
			}
			if err == nil {
				if err := h.Delete(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestServerWaitsForMounts has an engine that mounts something else: its server
// must not have begun, and nothing is left.
func TestServerWaitsForMounts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("mounts are checked on Linux")
	}
	dir := realDir(t)
	mkdirs(t, dir+"/a", dir+"/b")
	engine := dockertest.New(t)
	engine.Pid = os.Getpid() // whose root directory is this machine's
	h := fakeHost(t, engine)
	good := sandbox.Spec{Image: "debian", Key: "good", Mounts: []sandbox.Mount{{Source: dir + "/a", Target: dir + "/a"}}}
	s := create(t, h, good)
	bad := sandbox.Spec{Image: "debian", Key: "bad", Mounts: []sandbox.Mount{{Source: dir + "/a", Target: dir + "/b"}}}
	if _, err := h.Create(t.Context(), bad); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "changed after it was checked") {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	engine.Lock()
	for _, c := range engine.Containers {
		if c.ID != s.Instance && c.Served {
			t.Error("the other server was let start")
		}
	}
	if n := len(engine.Containers); n != 1 {
		t.Errorf("there are %d containers, want the good one", n)
	}
	engine.Unlock()

	// The same at a later start.
	if err := h.Stop(t.Context(), s, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir+"/a", dir+"/old"), os.Symlink("b", dir+"/a")); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context(), s); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a link in the place of the source: got %v, want ErrInvalid", err)
	}
	if err := os.Remove(dir + "/a"); err != nil {
		t.Fatal(err)
	}
	err := h.Start(t.Context(), s)
	if _, down := errors.AsType[*sandbox.UnreachableError](err); !errors.Is(err, sandbox.ErrInvalid) || down || !strings.Contains(err.Error(), dir+"/a") {
		t.Errorf("a source that is missing: got %v, want ErrInvalid with its path", err)
	}
	if err := os.Rename(dir+"/old", dir+"/a"); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// TestMountThatCannotBeChecked is refused where sandboxes can change what it is,
// and taken anywhere else.
func TestMountThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("mounts are checked on Linux")
	}
	dir := realDir(t)
	mkdirs(t, dir+"/share", dir+"/share/d", dir+"/share/d/e", dir+"/fine")
	for source, refused := range map[string]bool{"/share": false, "/share/d": true, "/share/d/e": true, "/fine": false} {
		engine := dockertest.New(t)
		engine.Foreign = []container.Summary{{ID: "f", Names: []string{"/f"}, Mounts: []container.MountPoint{{Type: mount.TypeBind, Source: dir + "/share", RW: true}}}}
		h := fakeHost(t, engine, func(c *docker.Config) { c.Transport = "port" })
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: dir + source, Target: "/x"}}})
		// The fake publishes no port, so no sandbox comes to life in this test.
		if errors.Is(err, sandbox.ErrInvalid) != refused || slices.Contains(engine.Calls, "start") == refused {
			t.Errorf("%s: got %v, want ErrInvalid and no start: %v", source, err, refused)
		}
	}
}

// TestAgentCannotSpoilLinks has an agent replace a directory that another sandbox mounts by
// a link to the root directory: only links that lie in what sandboxes mount are
// refused.
func TestAgentCannotSpoilLinks(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	share, elsewhere := dir+"/share", dir+"/elsewhere"
	mkdirs(t, share, share+"/sub", dir+"/operator", elsewhere)
	symlink(t, elsewhere, dir+"/ours")
	h := fakeHost(t, dockertest.New(t))
	create := func(source string) error {
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "debian", Mounts: []sandbox.Mount{{Source: source, Target: "/data"}}})
		return err
	}
	for _, source := range []string{share, share + "/sub", dir + "/operator"} {
		if err := create(source); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(share+"/sub", share+"/old"); err != nil {
		t.Fatal(err)
	}
	symlink(t, "/", share+"/sub")
	if err := create(dir + "/ours"); err != nil {
		t.Errorf("the operator's link: got %v", err)
	}
	symlink(t, elsewhere, share+"/old/evil")
	if err := create(share + "/old/evil"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("the agent's link: got %v, want ErrInvalid", err)
	}

	// The operator moves a directory that was mounted: what is in it stays suspect.
	symlink(t, elsewhere, dir+"/operator/evil")
	if err := os.Rename(dir+"/operator", dir+"/moved"); err != nil {
		t.Fatal(err)
	}
	symlink(t, "moved", dir+"/operator")
	if err := create(dir + "/moved/evil"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("the agent's link in a moved directory: got %v, want ErrInvalid", err)
	}
}
