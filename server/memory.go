package server

import (
	"iter"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
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
