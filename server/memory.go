package server

import (
	"iter"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// releaseMemory gives back what an idle server does not need: its free heap,
// and the pages of its own program. The kernel maps sixteen of those around each
// one that is touched, so that the start alone leaves most of the program
// resident, of which an action then uses a third. They stay in the page cache,
// which all servers of a host share, and the next action finds them there.
func releaseMemory() {
	debug.FreeOSMemory()
	releaseProgram()
}

// maxThreads is how many threads are made beforehand. They take 0.4 MiB, and were
// enough for 56 requests of all kinds at a time.
const maxThreads = 24

// reserveThreads has the runtime make threads, which it keeps for later. One that it
// cannot make when it needs it ends the program, and an agent can take all the
// processes that a sandbox may have.
func reserveThreads() {
	if mayHave() < 4*maxThreads {
		return // they would be what takes all
	}
	var held, over sync.WaitGroup
	release := make(chan struct{})
	for range maxThreads {
		held.Add(1)
		over.Go(func() {
			runtime.LockOSThread() // now it takes one for itself
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	over.Wait()
}

// mayHave is how many threads and processes the sandbox may have, as far as is
// known: a file says it where control groups have their second version, another
// where they have their first.
func mayHave() int {
	for _, file := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		text, _ := os.ReadFile(file)
		if limit, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return limit
		}
	}
	return math.MaxInt
}

// releaseProgram unmaps the pages of this program that were not changed. The
// next access maps them again.
func releaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // not Linux, or no /proc: nothing is lost but memory
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for m := range unchangedMappings(string(maps), program) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED) // an advice
	}
}

type mapping struct{ from, to uintptr }

// unchangedMappings are those in /proc/PID/smaps of a file that nobody may write
// to, and that nobody wrote to before: a loader puts addresses into a part of a
// position-independent program, and debuggers put breakpoints (proc_pid_smaps(5)).
func unchangedMappings(maps, file string) iter.Seq[mapping] {
	return func(yield func(mapping) bool) {
		var m mapping
		ok := false
		for line := range strings.Lines(maps) {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 0:
			case !strings.HasSuffix(fields[0], ":"):
				m, ok = readOnlyMapping(fields, file)
			case ok && fields[0] == "Anonymous:" && fields[1] == "0" && !yield(m):
				return
			}
		}
	}
}

// readOnlyMapping returns the mapping in the first line about one, if it is of
// that file and nobody may write to it.
func readOnlyMapping(fields []string, file string) (m mapping, ok bool) {
	if len(fields) < 6 || strings.Join(fields[5:], " ") != file || !strings.HasPrefix(fields[1], "r-") || !strings.HasSuffix(fields[1], "p") {
		return m, false
	}
	first, last, _ := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseUint(first, 16, 64)
	to, err2 := strconv.ParseUint(last, 16, 64)
	return mapping{uintptr(from), uintptr(to)}, err1 == nil && err2 == nil && from < to
}
