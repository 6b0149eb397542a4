package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

// life says how long the sandbox may live: to a deadline, and so long without
// work. The server ends itself.
type life struct {
	changed chan struct{} // holds one element after the limits were set anew

	mu       sync.Mutex
	deadline time.Time     // zero: none
	idle     time.Duration // 0: no limit
	work     int           // requests that are being worked on
	since    time.Time     // when the last work was seen
}

func newLife(ttl, idle time.Duration) *life {
	l := &life{changed: make(chan struct{}, 1)}
	l.limit(ttl, idle)
	return l
}

// limit sets both limits, which count from now; 0 means none. They are set
// before watch is told: otherwise it could look in between, see no idle limit,
// and look again a day later.
func (l *life) limit(ttl, idle time.Duration) {
	l.mu.Lock()
	l.idle, l.since = idle, time.Now()
	l.mu.Unlock()
	l.renew(ttl)
}

// renew sets the deadline, which counts from now; 0 means none.
func (l *life) renew(ttl time.Duration) {
	l.mu.Lock()
	l.deadline = time.Time{}
	if ttl > 0 {
		l.deadline = time.Now().Add(ttl)
	}
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *life) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work++
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work--
	l.since = time.Now()
}

// watch returns the reason to end when a limit is reached, or "" when ctx ends.
// running reports whether something goes on that is no request.
func (l *life) watch(ctx context.Context, running func() bool) string {
	for {
		due, reason := l.next(running())
		if reason != "" {
			return reason
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-timer.C:
			if late := time.Since(due); late > lateTime {
				l.thawed()
			}
		case <-l.changed:
		case <-ctx.Done():
			timer.Stop()
			return ""
		}
		timer.Stop()
	}
}

// lateTime is later than any timer of a process that was not frozen.
const lateTime = 10 * time.Second

// thawed is called after the process was frozen: that time does not count as idle.
func (l *life) thawed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
}

// next returns when to look again, or which limit is reached. A running action is
// work up to now: its end is not reported, so the next look is a whole limit
// later.
func (l *life) next(running bool) (due time.Time, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	due = now.Add(24 * time.Hour) // nothing but to be told of a change
	if !l.deadline.IsZero() {
		if !now.Before(l.deadline) {
			return due, "its time to live is over"
		}
		due = earlier(due, l.deadline)
	}
	if l.idle > 0 {
		if l.work > 0 || running {
			l.since = now
		}
		if !now.Before(l.since.Add(l.idle)) {
			return due, fmt.Sprintf("it was idle for %v", l.idle)
		}
		due = earlier(due, l.since.Add(l.idle))
	}
	return due, ""
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// running reports whether a command or a cell goes on, also one whose observation was sent.
func (s *Server) running() bool {
	for _, session := range s.cfg.Executor.Sessions() {
		if session.State == "busy" {
			return true
		}
	}
	return false
}

// working counts a request as work, which keeps the sandbox from being idle.
func (s *Server) working(h httpserver.Handler) httpserver.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		s.life.begin()
		defer s.life.end()
		return h(w, r)
	}
}

// status says how the sandbox is, and how long it will be.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	running := s.running()
	uid := os.Geteuid()
	if s.cfg.Owner != nil {
		uid = s.cfg.Owner.UID
	}
	answer := api.Life{Claimed: true, UserID: &uid, TrustProblem: s.network.trustProblem(), NamesProblem: s.network.namesProblem(), DirProblem: s.cfg.DirProblem}
	if who := s.owner.who.Load(); who != nil {
		answer.Owner = who.name
	}
	l := s.life
	l.mu.Lock()
	if running {
		l.since = time.Now()
	}
	answer.Busy = l.work > 0 || running
	since, deadline := l.since, l.deadline
	answer.IdleLimitSeconds = int(l.idle / time.Second)
	l.mu.Unlock()
	if !answer.Busy {
		since = onThisClock(since)
		answer.IdleSince = &since
	}
	if !deadline.IsZero() {
		deadline = onThisClock(deadline)
		answer.Deadline = &deadline
	}
	return writeJSON(w, http.StatusOK, answer)
}

// onThisClock is t as the wall clock counts now. It may have been set since t was
// taken, and who hears t compares it with a clock that was.
func onThisClock(t time.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(now)) // the difference is of the monotonic clock
}

// renew gives the sandbox a new deadline. A driver has its own record, by which it removes the sandbox: it alone
// may change this one.
func (s *Server) renew(w http.ResponseWriter, r *http.Request) error {
	if s.driven() && !s.hasTicket(r.Header.Get(api.TicketHeader)) {
		return &api.Error{
			Status: http.StatusConflict, Code: "driven",
			Detail: "The deadline of this sandbox is kept outside of it: renew it with 'runtimectl renew', or through its gateway",
		}
	}
	renewal, err := decodeJSON(r, api.DecodeRenewal)
	if err != nil {
		return err
	}
	s.life.renew(seconds(renewal.TTLSeconds))
	if err := s.Remember(); err != nil {
		return err
	}
	return s.status(w, r)
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
