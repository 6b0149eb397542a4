package proc

import (
	"crypto/rand"
	"syscall"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/mark"
)

// NewMark returns a variable for the environment of a process that is to be
// started, by which KillMarked finds its descendants: see package mark.
func NewMark() string { return "ACTIOND_TREE=" + rand.Text() }

// KillMarked kills the processes of a user that have a mark, with the user's rights
// to files, without which environments cannot be read.
func KillMarked(variable string, user *identity.User) {
	_ = user.Do(func() error { // an error says that the rights could not be had, so nothing was found
		mark.Kill(variable, user.EffectiveUID())
		return nil
	})
}

// SignalAnyMarked sends a signal to the processes of a user that have one of the marks, and
// reports whether it found one, as KillMarked does.
func SignalAnyMarked(marks map[string]bool, user *identity.User, what syscall.Signal) (found bool) {
	_ = user.Do(func() error {
		found = mark.SignalAny(marks, user.EffectiveUID(), what, nil)
		return nil
	})
	return found
}

// SignalMarked sends a signal to the processes that KillMarked kills, except those with
// the excepted numbers, and reports whether it found one. Signal 0 does nothing else.
func SignalMarked(variable string, user *identity.User, what syscall.Signal, except map[int]bool) (found bool) {
	_ = user.Do(func() error {
		found = mark.Signal(variable, user.EffectiveUID(), what, except)
		return nil
	})
	return found
}
