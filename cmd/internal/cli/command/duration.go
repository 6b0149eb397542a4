package command

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// DurationType is the type of flags that hold a duration, and the name of their value in help.
const DurationType = "DURATION"

// AddDuration gives flags one that holds a duration, such as 90s, 2h or 7d. short may be empty.
func AddDuration(flags *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, usage string) {
	*d = value
	flags.VarP((*duration)(d), name, short, usage)
}

// duration is a flag's value.
type duration time.Duration

// Set parses a duration.
func (d *duration) Set(word string) error {
	parsed, err := parseDuration(word)
	*d = duration(parsed)
	return err
}

// String returns a text that Set accepts.
func (d *duration) String() string {
	if *d == 0 {
		return "0" // which help takes for no default
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in help.
func (d *duration) Type() string { return DurationType }

var days = regexp.MustCompile(`^([0-9]{1,5})d(.*)$`)

// parseDuration is time.ParseDuration, with days before the hours.
func parseDuration(word string) (time.Duration, error) {
	var whole time.Duration
	rest := word
	if parts := days.FindStringSubmatch(word); parts != nil {
		n, err := strconv.Atoi(parts[1])
		if err != nil {
			return 0, err
		}
		if whole, rest = time.Duration(n)*24*time.Hour, parts[2]; rest == "" {
			return whole, nil
		}
	}
	part, err := time.ParseDuration(rest)
	if err != nil || whole > 0 && part < 0 || whole+part < whole && part > 0 {
		return 0, fmt.Errorf("%q is not a duration: write 90s, 2h or 7d", word)
	}
	return whole + part, nil
}
