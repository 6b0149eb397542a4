package api

import (
	"path/filepath"
	"strings"
)

// ClaimNetwork connects a sandbox without a network to the egress proxy, which keeps its policy.
type ClaimNetwork struct {
	// Egress is the address of the egress proxy: "unix:" and the absolute path of its socket.
	Egress string `json:"egress"`
	// Env are variables for the programs of the sandbox beside those that name the proxy. The
	// variables of the claim win over both.
	Env Variables `json:"env,omitempty"`
}

// Socket returns the path of the egress proxy's socket.
func (n ClaimNetwork) Socket() string { return strings.TrimPrefix(n.Egress, "unix:") }

// maxSocketPath bounds the path of a Unix socket, in bytes.
const maxSocketPath = 107

var claimNetworkShape = shapeOf(ClaimNetwork{}, "egress")

// UnmarshalJSON refuses addresses of other kinds.
func (n *ClaimNetwork) UnmarshalJSON(data []byte) (err error) {
	*n, err = decodeInner[ClaimNetwork](claimNetworkShape, "an object", data, true)
	if path := n.Socket(); err == nil && (path == n.Egress || !filepath.IsAbs(path) || len(path) > maxSocketPath || strings.ContainsRune(path, 0)) {
		return &ownError{"egress must be unix: and the absolute path of a socket, got " + Excerpt(n.Egress)}
	}
	return err
}
