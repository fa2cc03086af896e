package contention

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// contenders are the other processes that compete for the name, as far as refusals
// name them. If a contender has not had the lock since this process had it, this
// process lets the contender try first.
type contenders []contender

type contender struct {
	holder driver.Holder
	served bool // had the lock since this process had it
	missed int  // how many times in a row it did not
}

const (
	// maxContenders is the number of processes up to which taking turns pays off.
	maxContenders = 64
	// maxMissed is after how many missed turns a process counts as gone.
	maxMissed = 4
)

// served records that another process has the lock. All processes that do not describe
// themselves count as one.
func (c *contenders) served(holder driver.Holder) {
	holder.Note = ""
	known := slices.IndexFunc(*c, func(one contender) bool { return one.holder == holder })
	switch {
	case known >= 0:
		(*c)[known] = contender{holder: holder, served: true}
	case len(*c) < maxContenders:
		*c = append(*c, contender{holder: holder, served: true})
	}
}

// beginTurns records that this process has the lock: from now on it is the turn of the
// others.
func (c *contenders) beginTurns() {
	kept := (*c)[:0]
	for _, one := range *c {
		if !one.served {
			one.missed++
		}
		one.served = false
		if one.missed < maxMissed {
			kept = append(kept, one)
		}
	}
	*c = kept
}

// allServed reports whether every contender has had the lock since this process had
// it.
func (c contenders) allServed() bool {
	return !slices.ContainsFunc(c, func(one contender) bool { return !one.served })
}
