package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// durationFlag is a duration on the command line. A number without a unit is in seconds.
type durationFlag struct{ value *time.Duration }

// String returns "0" for zero, which pflag does not show as a default.
func (d durationFlag) String() string {
	if d.value == nil || *d.value == 0 {
		return "0"
	}
	return d.value.String()
}

func (d durationFlag) Type() string { return "duration" }

func (d durationFlag) Set(text string) (err error) {
	*d.value, err = parseDuration(text)
	return err
}

var digits = regexp.MustCompile(`[0-9]+`)

// parseDuration reads 30, 1.5, 30s or 5m30s.
func parseDuration(text string) (time.Duration, error) {
	tooLong := fmt.Errorf("invalid duration %q: it is too long", text)
	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil && !math.IsNaN(seconds) && !math.IsInf(seconds, 0) {
		if math.Abs(seconds) >= math.MaxInt64/float64(time.Second) {
			return 0, tooLong
		}
		return time.Duration(math.Round(seconds * float64(time.Second))), nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		if _, err := time.ParseDuration(digits.ReplaceAllString(text, "1")); err == nil {
			return 0, tooLong
		}
		return 0, fmt.Errorf("invalid duration %q: write 30 for seconds, or 500ms, 5m, 1h30m", text)
	}
	return parsed, nil
}

func addDuration(f *pflag.FlagSet, value *time.Duration, name, short string, standard time.Duration, usage string) {
	*value = standard
	f.VarP(durationFlag{value}, name, short, usage)
}
