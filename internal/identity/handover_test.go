package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// A link that the agent put in its working directory's place before a restart gets
// it nothing.
func TestHandOverFollowsNoLinkOfTheUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what is another's")
	}
	const agent = 1234
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	for _, name := range []string{"system", "home", "work", "roots"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"home/project":    "../system", // the agent's
		"data":            "home/project",
		"roots/work":      "../work",
		"roots/dots":      "again/../../work",
		"roots/again":     at("system"),
		"roots/for-ever":  "for-ever",
		"home/mount":      "/proc",
		"roots/to-system": "again/.",
	} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"home/project", "home/mount"} {
		if err := os.Lchown(at(link), agent, agent); err != nil {
			t.Fatal(err)
		}
	}
	owner := func(name string) int {
		info, err := os.Stat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	for _, path := range []string{"home/project", "home/project/", "home/./project", "data"} {
		err := identity.HandOver(at(path), agent, 0)
		if err == nil || !strings.Contains(err.Error(), "belongs to user 1234") {
			t.Errorf("%s: got %v, want the link named", path, err)
		}
	}
	if uid := owner("system"); uid != 0 {
		t.Errorf("the agent's link had its target given to %d", uid)
	}
	if _, mounted, err := identity.MountOwner(at("home/mount")); err == nil || mounted {
		t.Errorf("got %t, %v for the agent's link to a mount", mounted, err)
	}
	if err := identity.HandOver(at("roots/for-ever"), agent, 0); err == nil {
		t.Error("links in a circle were followed")
	}

	// A link of the image's builder is followed, as the kernel does.
	if err := identity.HandOver(at("roots/work"), agent, 0); err != nil || owner("work") != agent {
		t.Errorf("root's link: got %v, and the owner %d", err, owner("work"))
	}
	if err := identity.HandOver(at("roots/dots"), agent, 0); err == nil || owner("roots") == agent {
		t.Errorf("a .. after a link: got %v", err) // system/../../work is not there
	}
	if err := identity.HandOver(at("roots/to-system"), agent, 0); err != nil || owner("system") != agent {
		t.Errorf("root's links: got %v, and the owner %d", err, owner("system"))
	}
}

// In a mounted directory, files of other users than the directory's stay theirs; in the image's own
// directories all is handed over.
func TestHandOverKeepsFilesOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount and to make what is another's")
	}
	const agent, alice = 1234, 4321
	for name, mounted := range map[string]bool{"mounted": true, "below a mount": true, "not mounted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, err := os.MkdirTemp("/var/lib", "handover-") //nolint:usetesting // /tmp may be a mount
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			dir := base
			if mounted {
				if err := unix.Mount("none", base, "tmpfs", 0, ""); err != nil {
					t.Skipf("needs the right to mount: %v", err)
				}
				t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
			}
			if name == "below a mount" {
				dir = filepath.Join(base, "work")
			}
			owners := map[string]int{
				"proj": 0, "proj/f": 0, "proj/hers": alice, "alice": alice, "alice/f": alice, "alice/roots": 0, "link": 0, "her-link": alice, "fifo": 0,
			}
			for _, name := range []string{"proj", "alice"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"proj/f", "proj/hers", "alice/f", "alice/roots"} {
				testhelp.WriteFile(t, filepath.Join(dir, name), "", 0o600)
			}
			outside := filepath.Join(t.TempDir(), "outside")
			testhelp.WriteFile(t, outside, "", 0o600)
			if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink("/etc", filepath.Join(dir, "her-link")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
				t.Fatal(err)
			}
			for name, owner := range owners {
				if err := os.Lchown(filepath.Join(dir, name), owner, owner); err != nil {
					t.Fatal(err)
				}
			}
			if err := identity.HandOver(dir, agent, 0); err != nil {
				t.Error(err)
			}
			for name, was := range owners {
				want := agent
				if mounted && (was == alice || strings.HasPrefix(name, "alice/")) {
					want = was
				}
				if got := ownerOf(t, filepath.Join(dir, name)); got != want {
					t.Errorf("%s belongs to %d, want %d", name, got, want)
				}
			}
			if ownerOf(t, dir) != agent || ownerOf(t, outside) != 0 || ownerOf(t, "/etc") != 0 {
				t.Error("the directory was not handed over, or the target of a link was")
			}
		})
	}
}

func ownerOf(t *testing.T, name string) int {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
