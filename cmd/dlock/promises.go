package main

import (
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/inwords"
)

// asConfigured returns the traits without the promises that findings break.
func asConfigured(t driver.Traits, findings []driver.Finding) driver.Traits {
	t.SurvivesRestart = t.SurvivesRestart && breaking(findings, driver.PromiseRestart) == ""
	t.SurvivesFailover = t.SurvivesFailover && breaking(findings, driver.PromiseFailover) == ""
	return t
}

// breaking returns the names of the checks that break a promise; empty if it holds.
func breaking(findings []driver.Finding, promise driver.Promise) string {
	var checks []string
	for _, f := range findings {
		if promise != "" && f.Breaks == promise && !slices.Contains(checks, f.Check) {
			checks = append(checks, f.Check)
		}
	}
	return strings.Join(checks, ", ")
}

// promises describes what a store promises as it is configured, the broken promises first.
func promises(t driver.Traits, findings []driver.Finding) []string {
	var kept, broken []string
	keeps := func(text string) { kept = append(kept, text+".") }
	breaks := func(text string, promise driver.Promise) {
		if checks := breaking(findings, promise); checks != "" {
			text += " (see " + checks + " below)"
		}
		broken = append(broken, text+".")
	}
	if breaking(findings, driver.PromiseExclusion) != "" {
		breaks("Exclusion: two may hold a lock at once", driver.PromiseExclusion)
	}
	where := "on all machines"
	if t.OneMachine {
		where = "on this machine"
		keeps("Reach: processes of this machine only; processes of other machines are not excluded")
	}
	switch t.Fencing {
	case driver.FencingStrong:
		keeps("Tokens: every new holder of a name has a larger one, for as long as the store keeps its data")
	case driver.FencingClockBound:
		keeps("Tokens: they rise, also after data was lost, unless the store's clock steps back")
	default:
		breaks("Tokens: they may repeat or fall. Do not rely on them to fence off a late holder", "")
	}
	if t.Fair {
		keeps("Order: --fair serves first come, first served, " + where)
	} else {
		keeps("Order: none, --fair is not available")
	}
	configured := asConfigured(t, findings)
	if configured.SurvivesRestart {
		keeps("Restart: locks and tokens survive a crash of the store")
	} else {
		breaks("Restart: a crash of the store can forget locks, and two may then hold one", driver.PromiseRestart)
	}
	switch {
	case t.OneMachine: // no other server can take over
	case configured.SurvivesFailover:
		keeps("Failover: locks and tokens survive the takeover of one server by another")
	default:
		breaks("Failover: let no other server take over: it may forget locks, and two may then hold one", driver.PromiseFailover)
	}
	limit := "TTL: at least " + inwords.Duration(t.MinTTL)
	if t.MaxTTL > 0 && t.MaxTTL < driver.MaxTTL {
		limit += ", at most " + inwords.Duration(t.MaxTTL)
	}
	if t.Granularity > time.Millisecond {
		limit += "; a lock expires up to " + inwords.Duration(t.Granularity) + " late"
	}
	keeps(limit)
	pause := "for longer than its TTL loses the lock without knowing"
	if t.SessionBound && !t.SurvivesRestart { // to a connection
		pause = "keeps the lock for as long as its connection lives, and loses it without knowing when the connection ends"
	}
	keeps("Pauses: a holder that is paused " + pause + "; only a token that the resource checks keeps it out")
	return append(broken, kept...)
}
