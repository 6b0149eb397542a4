// Package random makes names and keys that cannot be guessed.
package random

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Hex returns n random bytes in hexadecimal digits. Where any letters will do,
// crypto/rand.Text is enough.
func Hex(n int) string {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return hex.EncodeToString(data)
}

// UUID7 returns a UUID of version 7 (RFC 9562): those of later milliseconds are greater.
func UUID7() string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // never fails
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16|
		0x7000|uint64(u[6])<<8&0x0fff|uint64(u[7]))
	u[8] = 0x80 | u[8]&0x3f
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
