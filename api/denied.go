package api

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Network is the part of an observation about the network policy of the sandbox. There is none
// where nothing was denied.
type Network struct {
	// Denied are the hosts that were denied most often, at most [MaxDenied], the most frequent first.
	Denied []Denied `json:"denied"`
	// More counts the denials that are left out.
	More int `json:"more"`
	// Attributed is true if all denials are known to be of the action's processes. Otherwise no
	// other action was running that can use the network.
	Attributed bool `json:"attributed"`
}

// MaxDenied bounds the hosts in an observation.
const MaxDenied = 20

// Denied are the denials of one host and port for one reason.
type Denied struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// FirstMS is when the first one happened, in milliseconds since the action began.
	FirstMS int64 `json:"first_ms"`
	// Process is the name of the process that asked first, or "" where it is unknown.
	Process string `json:"process,omitzero"`
}

// Text is the line for a model, without a newline: "[network] blocked by policy: …".
func (n *Network) Text() string {
	var b strings.Builder
	b.WriteString("[network] blocked by policy: ")
	for i, d := range n.Denied {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) + " (")
		if d.Count > 1 {
			fmt.Fprintf(&b, "%d×, ", d.Count)
		}
		b.WriteString(d.Reason + ")")
	}
	if n.More > 0 {
		fmt.Fprintf(&b, "; and %d more", n.More)
	}
	return b.String()
}

// NetworkOf returns the denials in an observation, nil without any. Only actions that can use the
// network have some.
func NetworkOf(o Observation) *Network {
	switch o := o.(type) {
	case RunObservation:
		return o.Network
	case ExecObservation:
		return o.Network
	case IPythonObservation:
		return o.Network
	case BrowseObservation:
		return o.Network
	case DownloadObservation:
		return o.Network
	case MCPObservation:
		return o.Network
	case ErrorObservation:
		return o.Network
	default:
		return nil
	}
}

// WithNetwork returns an observation with denials, if it is of an action that can use the network.
func WithNetwork(o Observation, n *Network) Observation {
	switch o := o.(type) {
	case RunObservation:
		o.Network = n
		return o
	case ExecObservation:
		o.Network = n
		return o
	case IPythonObservation:
		o.Network = n
		return o
	case BrowseObservation:
		o.Network = n
		return o
	case DownloadObservation:
		o.Network = n
		return o
	case MCPObservation:
		o.Network = n
		return o
	case ErrorObservation:
		o.Network = n
		return o
	default:
		return o
	}
}

// Origin is the process that asked for a connection.
type Origin struct {
	// Process is its name, or "" where it was not found.
	Process string
	// Kind is the kind of the actions that it belongs to, such as "run"; "" where it is not known.
	Kind string
	// Session is the name of the session of a "run" or a "run_ipython"; "" is a static command's.
	Session string
	// PID is the process id of the program of an "exec".
	PID int
	// Age is for how long the process has lived, or an older one between it and the shell of its session: an earlier action may have
	// left it. 0 means that it is what the shell runs in the foreground.
	Age time.Duration
}
