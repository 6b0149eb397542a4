package server

import (
	"math"
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

// waitIn reads the seconds that a request waits, absent where it does not say.
func waitIn(r *http.Request, absent, most time.Duration) (time.Duration, error) {
	n, err := number(r, "wait", uint64(absent/time.Second), uint64(most/time.Second)) //nolint:gosec // none is negative
	return time.Duration(n) * time.Second, err                                        //nolint:gosec // at most most
}

const (
	// The entries on a page of a list.
	defaultPage = 100
	maxPage     = 1000
)

// pageOf reads the page of a list: at most limit entries with smaller numbers than before, 0 for all.
func pageOf(r *http.Request) (before uint64, limit int, err error) {
	if before, err = number(r, "before", 0, math.MaxInt64); err != nil {
		return 0, 0, err
	}
	n, err := number(r, "limit", defaultPage, maxPage)
	return before, int(n), err //nolint:gosec // at most maxPage
}
