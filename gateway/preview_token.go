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

// previewToken names the signature in addresses and the cookie of preview hosts.
const previewToken = "actiond_preview"

// token signs the use of a port until a time. It is worth nothing for another sandbox,
// another port, or a sandbox that got the same id later.
func (g *Gateway) token(sessionKey, id string, port uint16, expires time.Time) string {
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = fmt.Fprintf(mac, "preview %s %d %d %s", id, port, expires.Unix(), sessionKey) // it cannot fail
	return strconv.FormatInt(expires.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// tokenExpires is the time in a token, which need not be valid.
func tokenExpires(token string) time.Time {
	text, _, _ := strings.Cut(token, ".")
	seconds, _ := strconv.ParseInt(text, 10, 64) // 0 is long ago
	return time.Unix(seconds, 0)
}

// validToken tells whether a token lets its bearer use a port now.
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

// withoutToken takes the signature out of a query and leaves the rest as it is.
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
