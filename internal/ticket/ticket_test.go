package ticket_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"testing"

	"github.com/actiond/actiond/internal/ticket"
)

func TestTicket(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := key.Public().(ed25519.PublicKey)
	other := ed25519.NewKeyFromSeed([]byte("another seed of thirty-two bytes"))
	for _, tt := range []struct {
		name, ticket string
		want         bool
	}{
		{"one", ticket.Sign(key, "one"), true},
		{"another sandbox's", ticket.Sign(key, "two"), false},
		{"one", ticket.Sign(other, "one"), false},
		{"one", hex.EncodeToString(ed25519.Sign(key, []byte("one"))), false}, // signed for something else
		{"one", hex.EncodeToString(public), false},
		{"one", "", false},
		{"one", "no digits", false},
	} {
		if got := ticket.Valid(public, tt.name, tt.ticket); got != tt.want {
			t.Errorf("Valid(%q, %q) = %v", tt.name, tt.ticket, got)
		}
	}
}
