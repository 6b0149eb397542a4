package api

import "github.com/go-json-experiment/json/jsontext"

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

// MarshalJSON returns what UnmarshalJSON takes.
func (n NetworkChoice) MarshalJSON() ([]byte, error) {
	if n.Policy != nil {
		return n.Policy, nil
	}
	return jsontext.AppendQuote(nil, n.Name)
}
