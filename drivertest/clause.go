package drivertest

import (
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Clause describes one check of the kit.
type Clause struct {
	ID          string // short, stable, the name of the subtest: "release-owner"
	Explanation string // what the contract demands, with the place it says so
	Needs       string // what a store must offer for the clause to apply; empty if nothing
}

// Clauses returns the clauses of the kit in the order in which they are checked.
func Clauses() []Clause {
	var all []Clause
	for _, c := range append(slices.Clone(clauses), nothingLeft) {
		var needs []string
		for _, n := range c.needs {
			needs = append(needs, n.what)
		}
		all = append(all, Clause{ID: c.id, Explanation: c.demand, Needs: strings.Join(needs, ", ")})
	}
	return all
}

// clause is a sentence of the contract and how to find out whether it is kept.
type clause struct {
	id     string
	demand string
	needs  []need
	check  func(p *probe)
	pair   func(p *probe, a, b *peer) // instead of check: a and b are connected like two machines
}

// clauses is everything but nothingLeft, which comes after all of them.
var clauses = slices.Concat(
	acquireClauses,
	exclusionClauses,
	processClauses,
	tokenClauses,
	releaseClauses,
	lateClauses,
	renewClauses,
	atomicClauses,
	expiryClauses,
	contextClauses,
	watchClauses,
	fairClauses,
	sharedClauses,
	limitClauses,
	listClauses,
	breakClauses,
	batchClauses,
	nameClauses,
	clientClauses,
)

// need is a condition for a clause to apply.
type need struct {
	what string
	met  func(*setup) bool
}

var (
	needWatcher = need{"Watcher", offers[driver.Watcher]}
	needLister  = need{"Lister", offers[driver.Lister]}
	needFinder  = need{"Finder", offers[driver.Finder]}
	needBreaker = need{"Breaker", offers[driver.Breaker]}
	needBatch   = need{"BatchAcquirer", offers[driver.BatchAcquirer]}

	needFair    = need{"Traits.Fair", func(s *setup) bool { return s.traits.Fair }}
	needPlaces  = need{"places that expire", func(s *setup) bool { return !s.traits.Queues }}
	needExpiry  = need{"Traits.WatchesExpiry", func(s *setup) bool { return s.traits.WatchesExpiry }}
	needQueues  = need{"Traits.Queues", func(s *setup) bool { return s.traits.Queues }}
	needFencing = need{"Traits.Fencing", func(s *setup) bool { return s.traits.Fencing != driver.FencingNone }}

	needWorker  = need{"Config.Worker", func(s *setup) bool { return s.Worker != nil }}
	needDelayed = need{"Config.Delayed", func(s *setup) bool { return s.Delayed != nil }}
	needSkewed  = need{"Config.Skewed", func(s *setup) bool { return s.Skewed != nil }}
)

func offers[E any](s *setup) bool {
	_, ok := s.store.(E)
	return ok
}

// missing names the first need that is not met; empty if the clause applies.
func (c *clause) missing(s *setup) string {
	for _, n := range c.needs {
		if !n.met(s) {
			return n.what
		}
	}
	return ""
}
