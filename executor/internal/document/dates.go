package document

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// builtInDate returns a format that stands for one of dates and times that a workbook does not have to name (ECMA-376, part 1,
// 18.8.30), and "" for one of numbers.
func builtInDate(id int) string {
	switch {
	case id >= 14 && id <= 17, id >= 27 && id <= 36, id >= 50 && id <= 58:
		return "y"
	case id >= 18 && id <= 21, id == 45, id == 47:
		return "h"
	case id == 22:
		return "yh"
	case id == 46:
		return "[h]"
	}
	return ""
}

// dateLayout returns how a number in a format of ECMA-376 is shown, as for [time.Time.Format]: "" for one that is no
// date, and durationLayout for hours that are not of a day.
func dateLayout(format string) string {
	for section := range strings.SplitSeq(dateLetters(format), ";") {
		clock := strings.ContainsAny(section, "hs")
		switch {
		case strings.Contains(section, "["):
			return durationLayout
		case hasDate(section) && clock:
			return time.DateTime
		case hasDate(section):
			return time.DateOnly
		case clock:
			return time.TimeOnly
		}
	}
	return ""
}

// hasDate reports whether letters of a section name a day, a month or a year. An m next to hours or seconds is of minutes.
func hasDate(letters string) bool {
	for i := range letters {
		switch letters[i] {
		case 'y', 'd', 'e', 'g', 'a', 'b':
			return true
		case 'm':
			before, after := strings.TrimRight(letters[:i], "m"), strings.TrimLeft(letters[i:], "m")
			if !strings.HasSuffix(before, "h") && !strings.HasPrefix(after, "s") {
				return true
			}
		}
	}
	return false
}

// dateLetters returns the letters of a format that stand for parts of dates and times, with the marks between its sections, and
// a bracket for a duration.
func dateLetters(format string) string {
	var letters strings.Builder
	format = strings.ToLower(format)
	for format != "" {
		size := 1
		switch c := format[0]; {
		case c == '"':
			_, rest, _ := strings.Cut(format[1:], `"`)
			size = len(format) - len(rest)
		case strings.IndexByte(`\!_*`, c) >= 0: // the next character is itself, a blank, or repeated
			size = 2
		case c == '[':
			unit, _, closed := strings.Cut(format[1:], "]")
			size = len(unit) + 2 // a color, a condition or a language
			if closed && unit != "" && strings.Trim(unit, unit[:1]) == "" && strings.Contains("hms", unit[:1]) {
				_ = letters.WriteByte('[')
			}
		default:
			for _, word := range []string{"general", "am/pm", "a/p", "e+", "e-"} {
				if strings.HasPrefix(format, word) {
					size = len(word)
				}
			}
			if size == 1 && strings.IndexByte("ymdhsegab;", c) >= 0 {
				_ = letters.WriteByte(c)
			}
		}
		format = format[min(size, len(format)):]
	}
	return letters.String()
}

const (
	durationLayout = "duration"
	// maxDate is the day after the last of 9999.
	maxDate = 2958466
)

// showNumber returns a number in full, a date or a time in the form of ISO 8601, and any other text as it is. A date has its time
// unless that is midnight, and a time the date that it has.
func showNumber(text, layout string, is1904 bool) string {
	v, err := strconv.ParseFloat(text, 64)
	_, noInt := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil, math.IsInf(v, 0), math.IsNaN(v), noInt == nil && layout == "":
		return text
	case layout == "", v < 0, v >= maxDate:
		short := strconv.FormatFloat(v, 'f', -1, 64)
		if len(strings.TrimPrefix(short, "-")) > 16 { // a sheet has 15 digits
			return strconv.FormatFloat(v, 'G', 15, 64)
		}
		return short
	}
	days := int(v)
	clock := time.Duration(math.Round((v-float64(days))*86400e3)) * time.Millisecond // may be a whole day
	if layout == durationLayout {
		return strconv.Itoa(days*24+int(clock/time.Hour)) + time.UnixMilli(clock.Milliseconds()).UTC().Format(":04:05.999")
	}
	first := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if is1904 {
		first = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	} else if v < 60 { // sheets have a 29 February 1900
		first = first.AddDate(0, 0, 1)
	}
	if layout == time.DateOnly && clock%(24*time.Hour) != 0 || layout == time.TimeOnly && v >= 1 {
		layout = time.DateTime
	}
	if layout != time.DateOnly {
		layout += ".999"
	}
	return first.AddDate(0, 0, days).Add(clock).Format(layout)
}
