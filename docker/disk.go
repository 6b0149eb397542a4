package docker

import (
	"os"
	"strings"

	"github.com/docker/docker/api/types/system"
)

// noDiskLimit returns why the engine cannot limit the files of a container, "" where it can.
func (h *Host) noDiskLimit(info system.Info) string {
	mounts := ""
	if len(h.view.sockets) > 0 { // the engine's files may be on this host
		data, _ := os.ReadFile("/proc/self/mountinfo") // the engine refuses what is unknown here
		mounts = string(data)
	}
	return noDiskLimit(info, mounts)
}

// noDiskLimit is [Host.noDiskLimit] with the text of mountinfo, "" where it is not known.
func noDiskLimit(info system.Info, mountinfo string) string {
	if info.Driver != "overlay2" {
		return "the engine's storage driver is " + info.Driver + " and not overlay2"
	}
	for _, status := range info.DriverStatus {
		if status[0] == "Backing Filesystem" && status[1] != "xfs" {
			return "the engine's files are on " + status[1] + " and not on xfs"
		}
	}
	if options := mountOptions(mountinfo, info.DockerRootDir); options != nil && !options["prjquota"] && !options["pquota"] {
		return "the xfs with the engine's files is not mounted with pquota"
	}
	return ""
}

// mountOptions returns the options of the file system with a path; nil where they are not known.
func mountOptions(mountinfo, path string) map[string]bool {
	longest, found := -1, map[string]bool(nil)
	for line := range strings.Lines(mountinfo) {
		// proc_pid_mountinfo(5): 36 35 98:0 /root /point options - type source options of the file system
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		point := strings.TrimSuffix(left[4], "/")
		if path != point && !strings.HasPrefix(path, point+"/") || len(point) < longest {
			continue
		}
		longest, found = len(point), map[string]bool{}
		for option := range strings.SplitSeq(right[2], ",") {
			found[option] = true
		}
	}
	return found
}
