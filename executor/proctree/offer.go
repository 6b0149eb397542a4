package proctree

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// offerMore is added to this process's own score, of 1000 for all memory there
// is: the server uses a hundredth of a sandbox's memory, so that what others run is
// always the larger.
const offerMore = 300

// Offer has a process that just started, and all that it starts, go before this
// one when memory runs out (proc(5), oom_score_adj). as gives a function the rights
// of the process's user to files. Where it cannot be done the kernel goes by size
// alone.
func Offer(pid int, as func(work func() error) error) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return
	}
	_ = as(func() error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, int64(min(1000, score+offerMore)), 10), 0)
	})
}
