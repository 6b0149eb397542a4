package sandbox

import (
	"errors"
	"strings"
)

// Errors of drivers; each is wrapped with the operation and its object.
var (
	// ErrNotFound: the sandbox does not exist.
	ErrNotFound = errors.New("no such sandbox")
	// ErrAmbiguous: several ids begin with the short id, or several sandboxes have the name.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrConflict: the key belongs to a sandbox of another specification, or the
	// name is taken.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the specification is not valid, or not allowed.
	ErrInvalid = errors.New("invalid specification")
	// ErrQuota: the platform's quota of sandboxes or of their resources is reached.
	ErrQuota = errors.New("the quota is used up")
	// ErrNoImage: the image does not exist and could not be pulled.
	ErrNoImage = errors.New("no such image")
	// ErrNoNetwork: the network does not exist.
	ErrNoNetwork = errors.New("no such network")
	// ErrEgress: the egress proxy cannot be asked, or does not have the sandbox's policy. Nothing
	// passes it meanwhile.
	ErrEgress = errors.New("the egress proxy is not ready")
	// ErrClaimed: another caller claimed the sandbox first. An [Agent] returns or wraps it.
	ErrClaimed = errors.New("claimed by another client")
	// ErrUnknown: the platform cannot be reached, so the state of the sandboxes is not
	// known. They may still run. Drivers name the platform before it.
	ErrUnknown = errors.New("the state of the sandboxes is unknown")
)

// UnreachableError reports that a platform cannot be reached. It is an [ErrUnknown].
type UnreachableError struct {
	Platform string // such as "the Docker engine at unix:///var/run/docker.sock"
	Reason   string // empty: it does not answer
	Hint     string // advice; may be empty
	Err      error
}

// Error returns one clause and the hint.
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

// StartError reports why a sandbox did not start. It was removed.
type StartError struct {
	ID   string
	Step string // that failed; empty: it was not started
	Hint string // advice; may be empty
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
