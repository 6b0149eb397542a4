// Package ticket makes tickets that claim one sandbox each, of many that are made from
// one template: the template has a public key, and a ticket is the signature of a
// sandbox's name. Neither the template, nor a sandbox, nor a ticket that was used, says
// how to claim another sandbox.
package ticket

import (
	"crypto/ed25519"
	"encoding/hex"
)

// scope keeps a signature from meaning something else than a claim.
const scope = "actiond claim\x00"

// Sign returns the ticket of the sandbox of a name.
func Sign(key ed25519.PrivateKey, name string) string {
	return hex.EncodeToString(ed25519.Sign(key, []byte(scope+name)))
}

// Valid reports whether ticket is that of the sandbox of a name.
func Valid(key ed25519.PublicKey, name, ticket string) bool {
	signature, err := hex.DecodeString(ticket)
	return err == nil && ed25519.Verify(key, []byte(scope+name), signature)
}
