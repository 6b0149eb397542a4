package docker

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/docker/docker/api/types/container"

	"github.com/actiond/actiond/sandbox"
)

// Memory of the kernel for one object whose contents count elsewhere, in bytes,
// rounded up from measurements with Linux 6.18.
const (
	inodeCost   = 1536 // a file of a tmpfs with a long name, or a segment of shared memory
	semCost     = 64   // a semaphore
	semSetCost  = 512  // a set of semaphores, besides those in it
	messageCost = 64   // a System V message of one byte
)

// Kernel defaults of the limits below (linux/ipc_namespace.h, uapi/linux/msg.h, uapi/linux/sem.h).
const (
	defaultSegments    = 4096
	defaultQueueBytes  = 16384
	defaultQueues      = 32000
	defaultSemsPerSet  = 32000
	defaultSemOps      = 500
	defaultSemSets     = 32000
	defaultMQueues     = 256
	defaultMQMessages  = 10
	defaultMQMessageSz = 8192
)

// unownedMemory limits memory that belongs to no process and so outlives the
// out-of-memory killer: files in memory, which are inodes even when they are
// empty, and the objects of System V and POSIX interprocess communication. An
// agent that fills it would leave the server too little for its next large
// request. All of it together gets less than a quarter of the sandbox's memory,
// or half with a read-only image, whose writable directories are in memory.
//
// An engine that maps users cannot set the limits of interprocess communication:
// sysctls is false there.
func unownedMemory(s *sandbox.Spec, host *container.HostConfig, sysctls bool) {
	part := s.Memory / 64
	shm := min(64<<20, 4*part)
	// As a tmpfs of the container's own: the size of the engine's can be chosen, but
	// not the number of its inodes.
	host.Tmpfs = map[string]string{"/dev/shm": tmpfs(shm, part/inodeCost, "1777") + ",noexec"}
	if s.ReadOnly {
		writableTmpfs(s, host, (s.Memory/4-shm)/4)
	}
	if sysctls {
		host.Sysctls = ipcLimits(part)
	}
}

// writableTmpfs mounts the directories of a read-only image that must be writable: four shares,
// or two and a half where the working directory is mounted. A file of a page or two
// takes an inode. The state directory buffers uploads, of which none can be larger.
func writableTmpfs(s *sandbox.Spec, host *container.HostConfig, share int64) {
	const bytesPerInode = 8192
	add := func(dir string, size int64, mode string) {
		host.Tmpfs[dir] = tmpfs(size, size/bytesPerInode, mode)
	}
	add("/tmp", share, "1777")
	add(insideState, share, "0700")
	add("/home", share/2, "0755")
	host.Tmpfs["/home"] += ",exec"
	if !slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Target == s.WorkDir }) {
		add(s.WorkDir, share*3/2, "0775")
		host.Tmpfs[s.WorkDir] += ",exec"
	}
}

// tmpfs are the mount options of a file system in memory.
func tmpfs(bytes, inodes int64, mode string) string {
	return fmt.Sprintf("rw,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s", bytes, max(64, inodes), mode)
}

// ipcLimits are the sysctls of the sandbox's namespace for interprocess
// communication, for a part of a 64th of its memory. They are never above the
// kernel's defaults, except for the size of shared memory, which has none.
func ipcLimits(part int64) map[string]string {
	limit := func(n, most int64) int64 { return max(1, min(n, most)) }
	// A queue takes as many messages as bytes, if they have one byte each.
	queues := limit(2*part/(defaultQueueBytes*messageCost), defaultQueues)
	sems := limit(part/semCost, defaultSemsPerSet*defaultSemSets)
	all := map[string]int64{
		"kernel.shmall":         max(1, 4*part/int64(os.Getpagesize())), // pages
		"kernel.shmmax":         4 * part,
		"kernel.shmmni":         limit(part/inodeCost, defaultSegments),
		"kernel.msgmni":         queues,
		"kernel.msgmnb":         defaultQueueBytes,
		"fs.mqueue.queues_max":  limit(part/(defaultMQMessages*defaultMQMessageSz), defaultMQueues),
		"fs.mqueue.msg_max":     defaultMQMessages,
		"fs.mqueue.msgsize_max": defaultMQMessageSz,
	}
	words := map[string]string{
		"kernel.sem": fmt.Sprintf("%d %d %d %d", min(defaultSemsPerSet, sems), sems, defaultSemOps, limit(part/2/semSetCost, defaultSemSets)),
	}
	for name, n := range all {
		words[name] = strconv.FormatInt(n, 10)
	}
	return words
}
