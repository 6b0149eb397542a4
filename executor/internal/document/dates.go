package document

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A workbook does not have to name these formats of dates and times (ECMA-376, part 1, 18.8.30).
var builtInDates = map[int]string{
	14: "y", 15: "y", 16: "y", 17: "y", 18: "h", 19: "h", 20: "h", 21: "h", 22: "yh", 45: "h", 46: "[h]", 47: "h",
}

// dateLayout returns how a number in a format of ECMA-376 is shown, as for [time.Time.Format]: "" for one that is no
// date, and durationLayout for hours that are not of a day.
func dateLayout(format string) string {
	date, clock := false, false
	for format != "" {
		c, size := format[0]|0x20, 1
		switch {
		case format[0] == ';': // the others are for other signs and for text
			format = ""
			continue
		case format[0] == '"':
			_, rest, _ := strings.Cut(format[1:], `"`)
			size = len(format) - len(rest)
		case strings.IndexByte(`\_*`, format[0]) >= 0: // the next character is itself, a blank, or repeated
			size = 2
		case format[0] == '[':
			unit, _, closed := strings.Cut(strings.ToLower(format[1:]), "]")
			if closed && unit != "" && strings.Trim(unit, unit[:1]) == "" && strings.Contains("hms", unit[:1]) {
				return durationLayout
			}
			size = len(unit) + 2 // a color, a condition or a language
		case c == 'g': // General
			return ""
		case c == 'y', c == 'd':
			date = true
		case c == 'h', c == 's':
			clock = true
		case c == 'm' && !clock: // minutes follow hours, or come before seconds
			rest := strings.TrimLeft(strings.ToLower(format), "m: ")
			date = date || !strings.HasPrefix(rest, "s")
		}
		format = format[min(size, len(format)):]
	}
	switch {
	case date && clock:
		return time.DateTime
	case date:
		return time.DateOnly
	case clock:
		return time.TimeOnly
	}
	return ""
}

const (
	durationLayout = "duration"
	// maxDate is the day after the last of 9999.
	maxDate = 2958466
)

// showNumber returns a number in full, a date or a time in the form of ISO 8601, and any other text as it is.
func showNumber(text, layout string, is1904 bool) string {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return text
	}
	if layout == "" || v < 0 || v >= maxDate {
		short := strconv.FormatFloat(v, 'f', -1, 64)
		if len(short) > 16 { // a sheet has 15 digits
			return strconv.FormatFloat(v, 'G', 15, 64)
		}
		return short
	}
	seconds := int64(math.Round(v * 86400))
	if layout == durationLayout {
		at := time.Unix(seconds, 0).UTC()
		return strconv.FormatInt(seconds/3600, 10) + at.Format(":04:05")
	}
	first := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if is1904 {
		first = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	} else if v < 60 { // sheets have a 29 February 1900
		first = first.AddDate(0, 0, 1)
	}
	return first.AddDate(0, 0, int(seconds/86400)).Add(time.Duration(seconds%86400) * time.Second).Format(layout)
}
