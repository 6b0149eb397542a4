package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

// maxWait bounds a long poll.
const maxWait = 10 * time.Minute

// preferAsync reads the header of RFC 7240: whether the client does not want to wait, and
// how long it would.
func preferAsync(r *http.Request) (wait time.Duration, async bool) {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.EqualFold(name, "respond-async"):
			async = true
		case strings.EqualFold(name, "wait"):
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 32); err == nil {
				wait = min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	return wait, async
}

// yes returns whether a parameter of the query is true; false where it is missing.
func yes(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text != "" && text != "true" && text != "false" {
		return false, invalid("query.%s: must be true or false, got %s", name, api.Describe(text))
	}
	return text == "true", nil
}

// number reads a whole number from the query, absent where it is not there.
func number(r *http.Request, name string, absent, most uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n > most {
		return 0, invalid("query.%s: must be a whole number from 0 to %d, got %s", name, most, api.Describe(text))
	}
	return n, nil
}
