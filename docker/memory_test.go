package docker_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/sandbox"
)

// Whatever the memory limit, an agent that fills all that no process owns leaves
// most of it to the server and its processes. The costs are those measured with
// Linux 6.18 for the smallest objects of each kind.
func TestUnownedMemory(t *testing.T) {
	t.Parallel()
	for _, megabytes := range []int64{32, 64, 96, 128, 256, 1024, 2048, 65536} {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprint(megabytes, " MiB, read-only ", readOnly), func(t *testing.T) {
				t.Parallel()
				var host container.HostConfig
				spec := sandbox.Spec{Memory: megabytes << 20, ReadOnly: readOnly, WorkDir: "/workspace"}
				docker.UnownedMemory(&spec, &host, true)
				files := int64(0)
				for dir, options := range host.Tmpfs {
					size, inodes := tmpfsLimits(t, options)
					if inodes < 64 {
						t.Errorf("%s has %d inodes", dir, inodes)
					}
					files += size + inodes*1536
				}
				number := func(name string) int64 {
					n, err := strconv.ParseInt(host.Sysctls[name], 10, 64)
					if err != nil || n < 1 {
						t.Fatalf("%s: %q", name, host.Sysctls[name])
					}
					return n
				}
				var perSet, sems, ops, sets int64
				if _, err := fmt.Sscan(host.Sysctls["kernel.sem"], &perSet, &sems, &ops, &sets); err != nil || perSet < 1 || ops < 1 {
					t.Fatalf("kernel.sem: %q: %v", host.Sysctls["kernel.sem"], err)
				}
				ipc := number("kernel.shmall")*int64(os.Getpagesize()) + number("kernel.shmmni")*1536 +
					number("kernel.msgmni")*number("kernel.msgmnb")*64 + sems*64 + sets*512 +
					number("fs.mqueue.queues_max")*number("fs.mqueue.msg_max")*number("fs.mqueue.msgsize_max")
				share, most := float64(files+ipc)/float64(spec.Memory), 0.25
				if readOnly {
					most = 0.5
				}
				if share > most {
					t.Errorf("%d bytes of files and %d of interprocess communication are %.0f %% of memory, want at most %.0f", files, ipc, 100*share, 100*most)
				}
			})
		}
	}
}

func tmpfsLimits(t *testing.T, options string) (size, inodes int64) {
	t.Helper()
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "size":
			size = n
		case "nr_inodes":
			inodes = n
		}
	}
	if size == 0 || inodes == 0 {
		t.Errorf("no limits in %q", options)
	}
	return size, inodes
}
