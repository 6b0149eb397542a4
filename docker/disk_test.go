package docker

import (
	"strings"
	"testing"

	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/sandbox"
)

func TestNoDiskLimit(t *testing.T) {
	t.Parallel()
	const (
		root  = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
		quota = "2 1 8:2 / /var/lib/docker rw - xfs /dev/sdb1 rw,attr2,prjquota\n"
		plain = "2 1 8:2 / /var/lib/docker rw - xfs /dev/sdb1 rw,attr2,noquota\n"
	)
	info := func(driver, backing string) system.Info {
		return system.Info{Driver: driver, DriverStatus: [][2]string{{"Backing Filesystem", backing}}, DockerRootDir: "/var/lib/docker"}
	}
	for _, tt := range []struct {
		name   string
		info   system.Info
		mounts string
		want   string // in the reason; "" for none
	}{
		{"quota", info("overlay2", "xfs"), root + quota, ""},
		{"unknown mounts", info("overlay2", "xfs"), "", ""},
		{"no quota", info("overlay2", "xfs"), root + plain, "pquota"},
		{"a later mount over it", info("overlay2", "xfs"), quota + plain, "pquota"},
		{"ext4", info("overlay2", "extfs"), root, "extfs"},
		{"containerd's", info("overlayfs", "xfs"), quota, "overlay2"},
	} {
		if got := noDiskLimit(tt.info, tt.mounts); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}

func TestDiskIsPlanned(t *testing.T) {
	t.Parallel()
	_, host := plan(&sandbox.Spec{Image: "i", Disk: 1 << 30}, creation{})
	if host.StorageOpt["size"] != "1073741824" {
		t.Errorf("got %v", host.StorageOpt)
	}
	if _, host := plan(&sandbox.Spec{Image: "i"}, creation{}); host.StorageOpt != nil {
		t.Errorf("without a limit: got %v", host.StorageOpt)
	}
}
