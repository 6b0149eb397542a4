package server

import (
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/files"
)

// usage measures this process. Its methods may be called concurrently.
type usage struct {
	mu      sync.Mutex
	at      time.Time     // when cpu was read
	cpu     time.Duration // processor time used until then
	percent float64       // between the last two readings
}

func newUsage(started time.Time) *usage { return &usage{at: started, cpu: cpuTime()} }

// resources returns the usage of the process, with zeros for figures that the system does
// not report.
func (u *usage) resources() api.Resources {
	r := api.Resources{CPUPercent: api.Float(u.cpuPercent()), Disk: disk()}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return r
	}
	self, err := proc.Self()
	if err != nil {
		return r
	}
	if status, err := self.NewStatus(); err == nil {
		r.Memory.RSS, r.Memory.VMS = status.VmRSS, status.VmSize
	}
	if machine, err := proc.Meminfo(); err == nil && machine.MemTotalBytes != nil && *machine.MemTotalBytes > 0 {
		r.Memory.Percent = api.Float(100 * float64(r.Memory.RSS) / float64(*machine.MemTotalBytes))
	}
	if storage, err := self.IO(); err == nil {
		r.IO = api.IO{ReadBytes: storage.ReadBytes, WriteBytes: storage.WriteBytes}
	}
	return r
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

// disk measures the file system of /.
func disk() api.Disk {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err != nil {
		return api.Disk{}
	}
	block := files.BlockSize(&fs)
	d := api.Disk{Total: fs.Blocks * block, Used: (fs.Blocks - fs.Bfree) * block, Free: fs.Bavail * block}
	if d.Used+d.Free > 0 {
		d.Percent = api.Float(round1(100 * float64(d.Used) / float64(d.Used+d.Free)))
	}
	return d
}

func round1(f float64) float64 { return math.Round(f*10) / 10 }
