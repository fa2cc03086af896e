// Package inwords writes durations for people.
package inwords

import (
	"fmt"
	"time"
)

// units of time, from the largest.
var units = []struct {
	name string
	of   time.Duration
}{
	{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}, {"millisecond", time.Millisecond},
}

// Duration describes a duration: "30 days", "1.5 seconds". A little less than a whole number
// of units is "almost" that number.
func Duration(d time.Duration) string {
	for _, u := range units {
		if d < u.of-u.of/100 {
			continue
		}
		whole := int((d + u.of/100) / u.of) // rounds up what is almost whole
		rest := d - time.Duration(whole)*u.of
		switch {
		case rest == 0:
			return plural(whole, u.name)
		case rest < 0:
			return "almost " + plural(whole, u.name)
		}
		return fmt.Sprintf("%.2g %ss", float64(d)/float64(u.of), u.name)
	}
	return d.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
