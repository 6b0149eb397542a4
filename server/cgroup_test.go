package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
)

// The figures of both versions of control groups, as kernels write them.
func TestControlGroups(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  api.Usage
		ok    bool
	}{
		"version 2": {map[string]string{
			"memory.current": "5000\n", "memory.max": "9000\n", "memory.stat": "anon 1\ninactive_file 1000\n", "pids.current": "3\n",
			"cpu.stat": "usage_usec 1500000\nuser_usec 7\n", "io.stat": "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n",
		}, api.Usage{CPUSeconds: 1.5, Memory: 4000, MemoryLimit: 9000, Pids: 3, DiskIn: 11, DiskOut: 22}, true},
		"version 2 without limits": {map[string]string{"memory.current": "5000\n", "memory.max": "max\n"}, api.Usage{Memory: 5000}, true},
		"version 1": {map[string]string{
			"memory/memory.usage_in_bytes": "5000\n", "memory/memory.limit_in_bytes": "9000\n", "memory/memory.stat": "total_inactive_file 6000\n",
			"pids/pids.current": "3\n", "cpuacct/cpuacct.usage": "1500000000\n", "blkio/blkio.throttle.io_service_bytes": "8:0 Read 10\n8:0 Write 20\nTotal 30\n",
		}, api.Usage{CPUSeconds: 1.5, Memory: 0, MemoryLimit: 9000, Pids: 3, DiskIn: 10, DiskOut: 20}, true},
		"version 1 without limits": {map[string]string{
			"memory/memory.usage_in_bytes": "5000\n", "memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, api.Usage{Memory: 5000}, true},
		"none": {map[string]string{"cgroup.procs": ""}, api.Usage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range tt.files {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
				must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			if got, ok := server.GroupUsage(dir); got != tt.want || ok != tt.ok {
				t.Errorf("got %+v, %v, want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}
