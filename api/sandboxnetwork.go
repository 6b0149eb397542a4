package api

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// NetworkChoice is the network that a creation asks a gateway for: a name or a policy. The zero value
// asks for the gateway's default.
type NetworkChoice struct {
	// Name is "bridge" or "none", empty for a policy.
	Name string
	// Policy is an object as NetworkPolicy in gateway.yaml describes it, as it was sent; nil for a
	// name. It may have values of secrets.
	Policy jsontext.Value
}

// String returns the name, or "a policy": a policy may have values of secrets.
func (n NetworkChoice) String() string {
	if n.Policy != nil {
		return "a policy"
	}
	return n.Name
}

// GoString implements [fmt.GoStringer].
func (n NetworkChoice) GoString() string { return n.String() }

// UnmarshalJSON keeps a policy as it was sent.
func (n *NetworkChoice) UnmarshalJSON(data []byte) error {
	*n = NetworkChoice{}
	switch jsontext.Value(data).Kind() {
	case '{':
		n.Policy = jsontext.Value(data).Clone()
		return nil
	case '"':
		name, err := text(data, true)
		if err == nil && name != "" && name != "bridge" && name != "none" {
			err = &wantError{`one of ["bridge" "none"], or a policy`, data}
		}
		n.Name = name
		return err
	}
	return &wantError{"a string or an object", data}
}

// MarshalJSON returns a form that [NetworkChoice.UnmarshalJSON] takes.
func (n NetworkChoice) MarshalJSON() ([]byte, error) {
	if n.Policy != nil {
		return n.Policy, nil
	}
	return jsontext.AppendQuote(nil, n.Name)
}

// SandboxNetwork answers /v1/sandboxes/{id}/network: the policy of a sandbox without the values of its
// secrets, and counts of its connections.
type SandboxNetwork struct {
	// Mode is "public", "no-network" or "allowlist".
	Mode  string   `json:"mode"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// MaxBytes limits the bytes sent and received together; 0 means no limit.
	MaxBytes int64           `json:"max_bytes"`
	Secrets  []NetworkSecret `json:"secrets"`
	// Generation grows with every change.
	Generation int64 `json:"generation"`
	// Egress is "ok", or "down" where the egress proxy does not answer: nothing is reached then, the
	// numbers below are 0, and Problem says why.
	Egress  string `json:"egress"`
	Problem string `json:"problem,omitzero"`
	// Open is the number of connections.
	Open int `json:"open"`
	// Bytes counts those sent and received.
	Bytes int64 `json:"bytes"`
	// Denied is the number of the latest denial; 0: none.
	Denied int64 `json:"denied"`
}

// NetworkSecret is a secret of a policy without its value.
type NetworkSecret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
	// Header is "" for Authorization, and Format is "" for "Bearer {}".
	Header string `json:"header,omitzero"`
	Format string `json:"format,omitzero"`
	// Var is the variable of the sandbox that has a placeholder; "" for none.
	Var string `json:"var,omitzero"`
}

// NetworkUnapplied is the body of a status 503 to a change of a policy that was stored: it applies once
// the egress proxy answers, and until then nothing is reached. Errors must not be nil.
type NetworkUnapplied struct {
	Detail string `json:"detail"`
	Errors []any  `json:"errors"`
	// Code is "egress_down".
	Code string `json:"code"`
	// Applied is false.
	Applied    bool  `json:"applied"`
	Generation int64 `json:"generation"`
}

// NumberedDenial is a connection that the policy of a sandbox refused.
type NumberedDenial struct {
	// Number is counted from 1, and again from 1 by every egress proxy.
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Host   string    `json:"host"`
	Port   int       `json:"port"`
	Reason string    `json:"reason"`
}

// DenialList answers /v1/sandboxes/{id}/network/denied. Denied must not be nil.
type DenialList struct {
	Denied []NumberedDenial `json:"denied"`
}
