package proc

import (
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/mark"
)

// StartWithin is Start with a limit of the caller's, through a stub or a copy of this program.
var StartWithin = start

// StubRuns reports whether Start uses stubs here.
func StubRuns() bool { return stubRuns() }

// Probe returns the function that asks a new probe.
func Probe() func(try func() error) bool { return new(probe).ask }

// KillMarkedOf is KillMarked for the processes of a user id, with the rights of
// this process.
func KillMarkedOf(variable string, uid int) bool {
	return mark.Signal(variable, uid, unix.SIGKILL, nil)
}

// Kept reports whether the answer to a question is kept.
func (f *Finder) Kept(path, dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watch == nil || f.watch.changed() {
		return false
	}
	return f.answers[question{path, dir}].kept || f.answers[question{path, ""}].kept
}

// Descendants returns the processes of a snapshot that descend from one of roots or are of its session.
var Descendants = descendants

// NewScan returns a Scan that knows processes of others, see [Scan.Others].
func NewScan(others map[int]uint64) *Scan { return &Scan{others: others} }

// Others returns them: the inodes in /proc by numbers.
func (s *Scan) Others() map[int]uint64 { return s.others }
