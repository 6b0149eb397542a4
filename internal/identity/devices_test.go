package identity_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
)

// A user gets the groups of devices that are for a group alone, and none that an agent could choose.
func TestAddDeviceGroups(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make devices")
	}
	dev := t.TempDir()
	for _, name := range []string{"dri", "shm", "theirs"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	null := int(unix.Mkdev(1, 3))
	for _, d := range []struct {
		name string
		mode uint32
		gid  int
	}{
		{"kfd", unix.S_IFCHR | 0o660, 4201},
		{"dri/renderD128", unix.S_IFCHR | 0o660, 4202},
		{"dri/card0", unix.S_IFCHR | 0o660, 4201}, // the same again
		{"nvidia0", unix.S_IFCHR | 0o666, 4301},   // for all users
		{"tty1", unix.S_IFCHR | 0o620, 4302},
		{"mem", unix.S_IFCHR | 0o660, 0},
		{"unmapped", unix.S_IFCHR | 0o660, 65534},
		{"disk", unix.S_IFBLK | 0o660, 4303},
		{"file", unix.S_IFREG | 0o660, 4304},
		{"shm/chosen", unix.S_IFCHR | 0o660, 4305},
		{"theirs/chosen", unix.S_IFCHR | 0o660, 4306},
	} {
		path := filepath.Join(dev, d.name)
		if err := unix.Mknod(path, d.mode, null); err != nil {
			t.Skipf("no devices can be made here: %v", err)
		}
		if err := os.Chmod(path, os.FileMode(d.mode&0o777)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, d.gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dev, "theirs"), filepath.Join(dev, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dev, "shm"), 0o1777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dev, "theirs"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	u := &identity.User{Name: "agent", UID: 1000, GID: 100, Groups: []uint32{100}}
	if err := u.AddDeviceGroups(dev); err != nil {
		t.Fatal(err)
	}
	slices.Sort(u.Groups)
	if want := []uint32{100, 4201, 4202}; !slices.Equal(u.Groups, want) {
		t.Errorf("got groups %v, want %v", u.Groups, want)
	}
}
