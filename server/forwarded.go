package server

import (
	"net/http"
	"strings"

	"github.com/actiond/actiond/api"
)

// forwardedPrefix returns the prefix of the paths of this server as the client
// sees them. The client sends its messages, and its key, to where this leads: so
// nothing that could be another host, or lead up, is one.
func forwardedPrefix(r *http.Request) (string, error) {
	const most = 1024
	prefix := strings.TrimSuffix(r.Header.Get(api.PrefixHeader), "/")
	if prefix == "" {
		return "", nil
	}
	first, rest, _ := strings.Cut(prefix, "/")
	ok := first == "" && len(prefix) <= most
	for segment := range strings.SplitSeq(rest, "/") {
		ok = ok && segment != "" && segment[0] != '.' && !strings.ContainsFunc(segment, unplain)
	}
	if !ok {
		return "", refuse(http.StatusBadRequest,
			"The header %s must be a path such as /sandboxes/a, of letters, digits and - . _ ~", api.PrefixHeader)
	}
	return prefix, nil
}

// unplain reports whether a character means something in an address.
func unplain(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~", c)
}
