// Package processors has the Go runtime use one processor while that is enough.
//
// A short request passes through several goroutines. With more than one processor, each of them that is woken wakes a thread beside
// it, which looks for work, finds none and sleeps again: that is most of what a command such as true costs the server
// (docs/reference/performance.md, docs/decisions/051-one-processor.md).
package processors

import (
	"container/list"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// short is how long a request may take on one processor. It is the time that the runtime gives to a goroutine in a row, so
	// that nothing waits longer for others than it would wait for one of them.
	short = 10 * time.Millisecond
	// calm is how long all requests are short before one processor is enough again: a change stops all goroutines for a moment. Each
	// time that it was enough for less than settled only, calm doubles, up to maxCalm: where other programs make requests long, more
	// processors get the server more time.
	calm    = 100 * time.Millisecond
	maxCalm = 10 * time.Second
	settled = time.Second
	// full is the part of one processor's time that the process may use, in percent.
	full = 90
)

// Governor chooses how many processors the Go runtime uses: one while all requests are short and one processor has time left,
// otherwise as many as it would use by itself. Its methods may be called concurrently; a nil Governor changes nothing.
type Governor struct {
	use   func(one bool)
	spent func() time.Duration // by the process, of all processors

	mu       sync.Mutex
	one      bool
	since    time.Time     // of the last change of one
	pause    time.Duration // until the next look while one is enough
	calm     time.Duration // until the next time
	requests list.List     // of time.Time, when those in flight began, the first one first
	timer    *time.Timer   // for the next look
	waits    bool          // a look is to come
	began    time.Time     // when the stretch of time before that look began
	before   time.Duration
}

// New returns a Governor, of which a process has one, and begins with one processor. It returns nil where the variable GOMAXPROCS says
// how many processors there are, or the runtime uses one anyway.
func New() *Governor {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return nil
	}
	return newGovernor(use, spent)
}

func newGovernor(use func(one bool), spent func() time.Duration) *Governor {
	// The start of a server, and of a first shell, is long and has little to do at a time: the first looks come late.
	g := &Governor{use: use, spent: spent, one: true, pause: calm, calm: calm}
	g.timer = time.AfterFunc(time.Hour, g.look)
	g.timer.Stop()
	use(true)
	return g
}

// use sets the number of processors of the runtime.
func use(one bool) {
	if one {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.SetDefaultGOMAXPROCS() // and follows the limit of the control group from then on
	}
}

// spent is the processor time of this process.
func spent() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0 // then only long requests get more processors
	}
	return time.Duration(t.Nano())
}

// Handler returns next, with its requests counted.
func (g *Governor) Handler(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer g.end(g.begin())
		next.ServeHTTP(w, r)
	})
}

func (g *Governor) begin() *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	request := g.requests.PushBack(now)
	if g.one && !g.waits {
		g.lookIn(g.pause, now)
	}
	return request
}

func (g *Governor) end(request *list.Element) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests.Remove(request)
	if !g.one && !g.waits {
		g.lookIn(g.calm, time.Now())
	}
}

// lookIn has the next look come after d. The caller holds mu.
func (g *Governor) lookIn(d time.Duration, now time.Time) {
	g.waits, g.began, g.before = true, now, g.spent()
	g.timer.Reset(d)
}

// look changes the number of processors where it is time to.
func (g *Governor) look() {
	g.mu.Lock()
	now := time.Now()
	long := g.hasLong(now)
	busy := (g.spent()-g.before)*100 > now.Sub(g.began)*full
	one := !long && !busy
	changed := one != g.one
	if changed && !one {
		g.calm = min(2*g.calm, maxCalm)
		if now.Sub(g.since) >= settled {
			g.calm = calm
		}
	}
	g.pause = short
	if changed {
		g.one, g.since = one, now
	}
	g.mu.Unlock()
	if changed {
		g.use(one)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waits = false
	switch {
	case g.one && g.requests.Len() > 0:
		g.lookIn(g.pause, now)
	case !g.one && !g.hasLong(now): // otherwise its end brings the next look
		g.lookIn(g.calm, now)
	}
}

// hasLong reports whether a request in flight is long. The caller holds mu.
func (g *Governor) hasLong(now time.Time) bool {
	oldest := g.requests.Front()
	return oldest != nil && now.Sub(oldest.Value.(time.Time)) >= short //nolint:forcetypeassert // it has no others
}
