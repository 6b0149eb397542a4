package api

import "time"

// NetworkState answers /v1/network: the network policy of the sandbox, and its denials.
type NetworkState struct {
	// Egress is "ok", or "down" where the egress proxy does not answer: the policy is unknown then,
	// and nothing is reached.
	Egress string `json:"egress"`
	// Mode is "public", "no-network" or "allowlist"; "" where the policy is unknown.
	Mode  string   `json:"mode,omitzero"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// MaxBytes limits the bytes sent and received together; 0 means no limit.
	MaxBytes int64 `json:"max_bytes,omitzero"`
	// Secrets are names.
	Secrets []string `json:"secrets"`
	// TrustProblem is why programs that use the image's own certificates do not trust hosts with
	// secrets; "" where they do.
	TrustProblem string `json:"trust_problem,omitzero"`
	// Names is true where programs that know no proxy can connect to names.
	Names bool `json:"names"`
	// NamesProblem is why they cannot, although the claim asked for it; otherwise "".
	NamesProblem string `json:"names_problem,omitzero"`
	// Open is the number of clients that are connected to the local proxy or by a name.
	Open int `json:"open"`
	// Denied are the latest 1,000 denials, the oldest first.
	Denied []NetworkDenial `json:"denied"`
}

// States of the egress proxy.
const (
	EgressOK   = "ok"
	EgressDown = "down"
)

// NetworkDenial is a connection that the policy refused.
type NetworkDenial struct {
	Time   time.Time `json:"time"`
	Host   string    `json:"host"`
	Port   int       `json:"port"`
	Reason string    `json:"reason"`
	// Process is the name of the process that asked for it, or "" where it is unknown.
	Process string `json:"process,omitzero"`
}
