package identity_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/identity"
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
