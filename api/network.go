package api

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/actiond/actiond/internal/lazyregexp"
)

// ClaimNetwork connects a sandbox without a network to the egress proxy, which keeps its policy.
type ClaimNetwork struct {
	// Egress is the address of the egress proxy: "unix:" and the absolute path of its socket, or
	// IP:PORT, which needs a Token.
	Egress string `json:"egress"`
	// Token is that of the sandbox at a proxy by IP:PORT. No program of the sandbox gets it.
	Token string `json:"token,omitempty"`
	// Names lets programs that know no proxy connect to names, by a resolver on 127.0.0.1:53.
	Names bool `json:"names,omitzero"`
	// Env are variables for the programs of the sandbox beside those that name the proxy. The
	// variables of the claim win over both.
	Env Variables `json:"env,omitempty"`
	// CA is the certificate, in PEM, of the authority by which the egress proxy opens TLS to hosts with
	// secrets; "" means none.
	CA string `json:"ca,omitzero"`
}

// Socket returns the path of the egress proxy's socket, "" for one by IP:PORT.
func (n ClaimNetwork) Socket() string {
	path, ok := strings.CutPrefix(n.Egress, "unix:")
	if !ok {
		return ""
	}
	return path
}

// maxCA bounds a certificate, in bytes.
const maxCA = 16 << 10

// maxSocketPath bounds the path of a Unix socket, in bytes.
const maxSocketPath = 107

var claimNetworkShape = shapeOf(ClaimNetwork{}, "egress")

// UnmarshalJSON refuses addresses of other kinds.
func (n *ClaimNetwork) UnmarshalJSON(data []byte) (err error) {
	*n, err = decodeInner[ClaimNetwork](claimNetworkShape, "an object", data, true)
	if err != nil {
		return err
	}
	if len(n.CA) > maxCA {
		return &ownError{fmt.Sprintf("ca has %d bytes; at most %d can be", len(n.CA), maxCA)}
	}
	if n.Token != "" {
		if at, err := netip.ParseAddrPort(n.Egress); err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
			return &ownError{"with a token, egress must be IP:PORT, got " + Excerpt(n.Egress)}
		}
		if len(n.Token) > maxToken || !tokenPattern().MatchString(n.Token) {
			return &ownError{"token must be at most 256 letters, digits, dots and hyphens"}
		}
		return nil
	}
	if path := n.Socket(); !filepath.IsAbs(path) || len(path) > maxSocketPath || strings.ContainsRune(path, 0) {
		return &ownError{"egress must be unix: and the absolute path of a socket, or IP:PORT with a token, got " + Excerpt(n.Egress)}
	}
	return nil
}

// maxToken is the length of the longest token. In the pattern, it would take most of the time
// that a process needs to start with this package.
const maxToken = 256

// A token becomes part of a header.
var tokenPattern = lazyregexp.New(`^[0-9A-Za-z.-]+$`)
