package api

import (
	"math"
	"strconv"
	"strings"
)

// FormatSeconds prints f as Python's repr of a float does, because clients
// match the texts that hold timeouts: 1 is "1.0", 1e16 is "1e+16".
func FormatSeconds(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	// The shortest digits that read back the same; an exponent only outside
	// of 1e-4 to 1e16 (float_repr_style "short").
	if abs := math.Abs(f); f != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
