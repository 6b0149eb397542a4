package executor

import (
	"math"
	"time"

	"github.com/actiond/actiond/api"
)

// limit is how long a request may take; false where it does not say, or says 0,
// which is none in the reference too.
func limit(req api.Request) (time.Duration, bool) {
	if req.Timeout == nil || *req.Timeout == 0 {
		return 0, false
	}
	return seconds(*req.Timeout), true
}

// seconds is f as a duration, the longest there is where it would not fit.
func seconds(f float64) time.Duration {
	switch {
	case f <= 0:
		return 0
	case f >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	}
	return time.Duration(f * float64(time.Second))
}
