package server

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// maxThreads is the number of threads that are created in advance. They take
// 0.4 MiB and were enough for 56 simultaneous requests of all kinds.
const maxThreads = 24

// reserveThreads makes the runtime create threads, which it keeps for later. A
// thread that it needs and cannot create ends the program, and the agent can use
// up all the processes that the sandbox may have.
func reserveThreads() {
	if processLimit() < 4*maxThreads {
		return // the threads themselves would use up the limit
	}
	var held, over sync.WaitGroup
	release := make(chan struct{})
	for range maxThreads {
		held.Add(1)
		over.Go(func() {
			runtime.LockOSThread() // the goroutine gets a thread of its own
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	over.Wait()
}

// processLimit returns the number of threads and processes that the sandbox may
// have, by the file of either version of control groups; [math.MaxInt] if neither
// says.
func processLimit() int {
	for _, file := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		text, _ := os.ReadFile(file)
		if limit, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return limit
		}
	}
	return math.MaxInt
}
