package sandbox

import (
	"errors"
	"strings"
)

// Errors of drivers; each is wrapped with what was done and with what.
var (
	// ErrNotFound: the sandbox does not exist.
	ErrNotFound = errors.New("no such sandbox")
	// ErrAmbiguous: the short id is the beginning of more than one id.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrConflict: the key belongs to a sandbox of another specification, or the
	// name is taken.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the specification asks for something it may not have.
	ErrInvalid = errors.New("invalid specification")
	// ErrQuota: the platform's quota of sandboxes, or of what they use, is reached.
	ErrQuota = errors.New("the quota is used up")
	// ErrNoImage: the image is not there and could not be pulled.
	ErrNoImage = errors.New("no such image")
	// ErrNoNetwork: the network is not there.
	ErrNoNetwork = errors.New("no such network")
	// ErrClaimed: another caller claimed the sandbox first. An [Agent] returns it
	// (or wraps it) to say so.
	ErrClaimed = errors.New("claimed by another client")
	// ErrUnknown: the platform cannot be reached, so nothing is known about the
	// sandboxes. They may well live on. Drivers name the platform before it.
	ErrUnknown = errors.New("the state of the sandboxes is unknown")
)

// UnreachableError reports that a platform cannot be reached. It is an [ErrUnknown].
type UnreachableError struct {
	Platform string // such as "the Docker engine at unix:///var/run/docker.sock"
	Reason   string // empty: it does not answer
	Hint     string // what to do, empty if that is not known
	Err      error
}

// Error returns one clause, and the hint.
func (e *UnreachableError) Error() string {
	text := e.Platform + " cannot be reached"
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns [ErrUnknown] and the cause.
func (e *UnreachableError) Unwrap() []error { return []error{ErrUnknown, e.Err} }

// StartError says why a sandbox did not come to life. Nothing is left of it.
type StartError struct {
	ID   string
	Step string // what was waited for, empty: it was not started
	Hint string // what to do, empty if that is not known
	Logs string // the container's last lines
	Err  error
}

func (e *StartError) Error() string {
	text := "sandbox " + e.ID + ": "
	if e.Step != "" {
		text += e.Step + ": "
	}
	text += e.Err.Error()
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	if e.Logs != "" {
		text += "\nits last words:\n  " + strings.ReplaceAll(e.Logs, "\n", "\n  ")
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }
