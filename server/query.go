package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/actiond/actiond/api"
)

// maxWait bounds a long poll.
const maxWait = 10 * time.Minute

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
