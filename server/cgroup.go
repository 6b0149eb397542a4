package server

import (
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/actiond/actiond/api"
)

// usedResources answers with the usage of all processes of the sandbox.
func (s *Server) usedResources(w http.ResponseWriter, _ *http.Request) error {
	u, ok := controlGroup(s.cfg.ControlGroup).usage()
	if !ok {
		return refuse(http.StatusBadRequest, "The kernel does not measure this sandbox: it has no control group of its own")
	}
	u.Time = time.Now()
	if proc, err := procfs.NewDefaultFS(); err == nil {
		devices, _ := proc.NetDev() // without a network there are none
		for name, d := range devices {
			if name != "lo" {
				u.NetIn += d.RxBytes
				u.NetOut += d.TxBytes
			}
		}
	}
	return writeJSON(w, http.StatusOK, u)
}

// controlGroupDir is where containers see their control group.
const controlGroupDir = "/sys/fs/cgroup"

// controlGroup is the directory at which a container sees its control group: that of
// version 2, or the one that has a directory for each controller of version 1.
type controlGroup string

// usage measures the group. It fails where the directory shows no group but the root.
func (g controlGroup) usage() (u api.Usage, ok bool) {
	if used, ok := g.number("memory.current"); ok {
		u.Memory = used - min(used, g.member("memory.stat", "inactive_file"))
		u.MemoryLimit = g.limit()
		u.CPUSeconds = api.Float(float64(g.member("cpu.stat", "usage_usec")) / 1e6)
		u.Pids, _ = g.number("pids.current")
		for _, words := range g.lines("io.stat") {
			for _, word := range words {
				name, value, _ := strings.Cut(word, "=")
				n, _ := strconv.ParseUint(value, 10, 64) // other members are no numbers
				switch name {
				case "rbytes":
					u.DiskIn += n
				case "wbytes":
					u.DiskOut += n
				}
			}
		}
		return u, true
	}
	used, ok := g.number("memory/memory.usage_in_bytes")
	if !ok {
		return u, false
	}
	u.Memory = used - min(used, g.member("memory/memory.stat", "total_inactive_file"))
	u.MemoryLimit = g.limit()
	nanoseconds, _ := g.number("cpuacct/cpuacct.usage")
	u.CPUSeconds = api.Float(float64(nanoseconds) / 1e9)
	u.Pids, _ = g.number("pids/pids.current")
	for _, words := range g.lines("blkio/blkio.throttle.io_service_bytes") { // DEVICE Read N
		if len(words) != 3 {
			continue
		}
		n, _ := strconv.ParseUint(words[2], 10, 64)
		switch words[1] {
		case "Read":
			u.DiskIn += n
		case "Write":
			u.DiskOut += n
		}
	}
	return u, true
}

// limit is how many bytes of memory the group may use, 0 without a limit.
func (g controlGroup) limit() uint64 {
	if most, ok := g.number("memory.max"); ok { // "max" is no number
		return most
	}
	most, _ := g.number("memory/memory.limit_in_bytes")
	if most > math.MaxInt64/2 { // the kernel's word for no limit
		return 0
	}
	return most
}

// maxGroupFile is longer than any file of a control group that is read.
const maxGroupFile = 256 << 10

func (g controlGroup) read(name string) (text string, ok bool) {
	f, err := os.Open(filepath.Join(string(g), name))
	if err != nil {
		return "", false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxGroupFile))
	return strings.TrimSpace(string(data)), err == nil
}

// number reads a file that has one number.
func (g controlGroup) number(name string) (n uint64, ok bool) {
	text, ok := g.read(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// lines are the words of each line of a file.
func (g controlGroup) lines(name string) (all [][]string) {
	text, _ := g.read(name) // a file that is not there has no lines
	for line := range strings.Lines(text) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// member is the number behind a name in a file, 0 without one.
func (g controlGroup) member(name, key string) uint64 {
	for _, words := range g.lines(name) {
		if len(words) == 2 && words[0] == key {
			n, _ := strconv.ParseUint(words[1], 10, 64) // the kernel's
			return n
		}
	}
	return 0
}
