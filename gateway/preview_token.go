package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// previewToken is the name of the signature in addresses and of the cookie of preview hosts.
const previewToken = "actiond_preview"

// token signs the use of a port until a time. It is not valid for another sandbox,
// another port, or a later sandbox of the same id.
func (g *Gateway) token(sessionKey, id string, port uint16, expires time.Time) string {
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = fmt.Fprintf(mac, "preview %s %d %d %s", id, port, expires.Unix(), sessionKey) // it cannot fail
	return strconv.FormatInt(expires.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// tokenExpires returns the time in a token, which need not be valid.
func tokenExpires(token string) time.Time {
	text, _, _ := strings.Cut(token, ".")
	seconds, _ := strconv.ParseInt(text, 10, 64) // 0 has expired
	return time.Unix(seconds, 0)
}

// validToken reports whether the bearer of a token may use a port now.
func (g *Gateway) validToken(to *entry, port uint16, token string) bool {
	expires := tokenExpires(token)
	if time.Now().After(expires) {
		return false
	}
	key, err := to.sessionKey()
	if err != nil || key == "" {
		return false
	}
	return sameKey(token, sha256.Sum256([]byte(g.token(key, to.current().ID, port, expires))))
}

// withoutToken removes the signature from a query.
func withoutToken(query string) string {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != previewToken {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}
