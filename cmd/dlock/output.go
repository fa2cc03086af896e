package main

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

// lockJSON is one lock in the output of ls --json and show --json.
type lockJSON struct {
	Name        string     `json:"name"`
	Token       uint64     `json:"token"`
	Holder      holderJSON `json:"holder"`
	Since       *time.Time `json:"since"` // null if the store does not know
	RemainingMS int64      `json:"remaining_ms"`
	Waiters     int        `json:"waiters"`
}

// holderJSON always has all fields, so that scripts need not check for them.
type holderJSON struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note"`
}

func describeLock(info driver.Info) *lockJSON {
	lock := &lockJSON{
		Name:        info.Name,
		Token:       info.Token,
		Holder:      holderJSON(info.Holder),
		RemainingMS: info.Remaining.Milliseconds(),
		Waiters:     info.Waiters,
	}
	if !info.Since.IsZero() {
		since := info.Since.UTC()
		lock.Since = &since
	}
	return lock
}

// sinceText shows the time of day, with the date if it is not today.
func sinceText(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	since = since.Local()
	if y, m, d := since.Date(); now.Year() == y && now.Month() == m && now.Day() == d {
		return since.Format("15:04:05")
	}
	return since.Format("2006-01-02 15:04:05")
}

// remainingText rounds a duration.
func remainingText(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
