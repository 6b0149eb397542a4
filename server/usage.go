package server

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/actiond/actiond/api"
)

// usage measures this process. Its methods may be called concurrently.
type usage struct {
	mu      sync.Mutex
	at      time.Time     // when cpu was read
	cpu     time.Duration // processor time used until then
	percent float64       // between the last two readings
}

func newUsage(started time.Time) *usage { return &usage{at: started, cpu: cpuTime()} }

// resources returns what the process uses, with zeros where the system does
// not say.
func (u *usage) resources() api.Resources {
	return api.Resources{CPUPercent: api.Float(u.cpuPercent()), Memory: memory(), Disk: disk(), IO: storage()}
}

// cpuPercent returns the share of one processor that was used since the last
// call. Calls that follow within a tenth of a second share one reading, as the
// kernel's figures are too coarse for less.
func (u *usage) cpuPercent() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.at) >= 100*time.Millisecond {
		cpu := cpuTime()
		u.percent = round1(100 * float64(cpu-u.cpu) / float64(now.Sub(u.at)))
		u.at, u.cpu = now, cpu
	}
	return u.percent
}

// cpuTime returns the processor time of all threads of this process.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// memory reads /proc/self/status, which counts in units of 1024 bytes.
func memory() api.Memory {
	status, _ := os.ReadFile("/proc/self/status")
	m := api.Memory{VMS: 1024 * labelled(status, "VmSize:"), RSS: 1024 * labelled(status, "VmRSS:")}
	info, _ := os.ReadFile("/proc/meminfo")
	if total := 1024 * labelled(info, "MemTotal:"); total > 0 {
		m.Percent = api.Float(100 * float64(m.RSS) / float64(total))
	}
	return m
}

// disk measures the file system of /.
func disk() api.Disk {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err != nil {
		return api.Disk{}
	}
	block := blockSize(&fs)
	d := api.Disk{Total: fs.Blocks * block, Used: (fs.Blocks - fs.Bfree) * block, Free: fs.Bavail * block}
	if d.Used+d.Free > 0 {
		d.Percent = api.Float(round1(100 * float64(d.Used) / float64(d.Used+d.Free)))
	}
	return d
}

// blockSize returns the unit in which a file system is measured.
func blockSize(fs *syscall.Statfs_t) uint64 {
	size := cmp.Or(fs.Frsize, fs.Bsize) // old kernels leave the first empty
	if size < 0 {
		return 0
	}
	return uint64(size)
}

// storage reads what went to and came from storage.
func storage() api.IO {
	data, _ := os.ReadFile("/proc/self/io")
	return api.IO{ReadBytes: labelled(data, "read_bytes:"), WriteBytes: labelled(data, "write_bytes:")}
}

// labelled returns the number behind a label at the start of a line, 0 when
// there is none.
func labelled(data []byte, label string) uint64 {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(label)); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseUint(string(fields[0]), 10, 64)
				return n
			}
		}
	}
	return 0
}

func round1(f float64) float64 { return math.Round(f*10) / 10 }
