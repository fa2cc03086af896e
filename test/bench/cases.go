package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// kind is a kind of case, the same for every store.
type kind struct {
	name         string
	title, about string // for readers
	table        string // of the documents, in which the results are
	rounds       int

	// clientOnly restricts the case to dlock.
	clientOnly bool

	// mode restricts the case to subjects that offer it.
	mode driver.Mode

	// commands restricts the case to subjects that are commands.
	commands bool

	// points, of a curve of growth, are the values of round.at, and axis is what
	// they count.
	points []int
	axis   string

	// run measures a subject in one round.
	run func(ctx context.Context, r round) (figures, error)

	// interleaved, in place of run, measures all subjects of a round at once.
	interleaved func(ctx context.Context, rounds []round) ([]figures, error)
}

// kinds are in the order of the measurements.
var kinds = []kind{
	{
		name: "solo", title: "Alone", table: "rates", rounds: 7, interleaved: interleaved(25*time.Millisecond, openSolo),
		about: "One goroutine takes a lock that nothing else wants.",
	},
	{
		name: "many", title: "Many", table: "rates", rounds: 7, interleaved: interleaved(100*time.Millisecond, openMany),
		about: "64 goroutines of one process, each with a lock of its own.",
	},
	{
		name: "handover", title: "Contended", table: "rates", rounds: 5, run: runHandover,
		about: "4 processes with 4 goroutines each want one lock and hold it for 1 ms, so that 1,000/s is the limit.",
	},
	{
		name: "crowd", title: "Hot", table: "rates", rounds: 5, run: runCrowd,
		about: "16 goroutines of one process want one lock and release it at once.",
	},
	{
		name: "readers", title: "Readers", table: "modes", rounds: 5, mode: driver.Mode{Shared: true}, run: runReaders,
		about: "4 processes with 16 goroutines each use one name for 1 ms at a time, 95 % of the time shared. " +
			"dlock/exclusive is the same with exclusive locks only.",
	},
	{
		name: "permits", title: "Permits", table: "modes", rounds: 5,
		mode: driver.Mode{Limit: permitsPlan.Limit}, run: runPermits,
		about: "4 processes with 16 goroutines each use a semaphore with 8 permits for 1 ms at a time, " +
			"so that 8,000/s is the limit. dlock/exclusive is the same with an exclusive lock.",
	},
	{
		name: "waiters", title: "Waiting", rounds: 3, clientOnly: true, run: runWaiters,
		about: "10,000 goroutines of one process wait for one lock.",
	},
	{
		name: "held", title: "Held", rounds: 1, clientOnly: true, run: runHeld,
		about: "One client holds many locks and renews them.",
	},
	{
		name: "exec", title: "Command line", table: "commands", rounds: 3, commands: true, interleaved: runCommands,
		about: "Time of a command that does nothing, alone and under a lock. Less is better; " +
			"the mark ends at the 99th percentile.",
	},
	{
		name: "grow-crowd", title: "Growth: a hot lock", rounds: 1, points: powers(2, 64), axis: "goroutines", run: runCrowd,
		about: "Goroutines of one process want one lock and release it at once.",
	},
	{
		name: "grow-processes", title: "Growth: processes", rounds: 1, points: powers(2, 64), axis: "processes",
		run: runHandover,
		about: "Processes with 4 goroutines each want one lock and hold it for 1 ms. " +
			"Where processes cannot share the store, clients take their place.",
	},
	{
		name: "grow-readers", title: "Growth: readers", rounds: 1, clientOnly: true, mode: driver.Mode{Shared: true},
		points: []int{1, 100, 10_000}, axis: "readers", run: runGrowingReaders,
		about: "Goroutines of one process use one name shared, for 10 ms at a time. " +
			"Their requests to the store are in the table.",
	},
	{
		name: "grow-waiters", title: "Growth: waiters", rounds: 1, clientOnly: true,
		points: powers(10, 10_000), axis: "waiters", run: runWaiters,
		about: "Goroutines of one process wait for one lock, which is then handed from one to the next.",
	},
	{
		name: "grow-held", title: "Growth: locks held", rounds: 1, clientOnly: true,
		points: powers(10, 100_000), axis: "locks held", run: runBesideHeld,
		about: "One goroutine locks and unlocks while its client holds other locks.",
	},
}

// growthStores have curves of growth unless --only names other stores.
var growthStores = []string{"memory", "sqlite", "redis"}

// powers returns the powers of base up to last.
func powers(base, last int) (points []int) {
	for n := 1; n <= last; n *= base {
		points = append(points, n)
	}
	return points
}

// job is a case on a store.
type job struct {
	store subjects.Store
	kind  kind
}

func (j job) name() string { return j.store.Name + "/" + j.kind.name }

// subjects returns the subjects of the case. The curves have the floor, dlock and
// other libraries, but no variants and no parts of dlock.
func (j job) subjects() []subjects.Subject {
	return slices.DeleteFunc(slices.Clone(j.store.Subjects), func(s subjects.Subject) bool {
		onCurve := s.Program == nil && !strings.Contains(s.Name, "/") && s.Name != "bare" && s.Name != "store"
		return s.Command != j.kind.commands ||
			j.kind.clientOnly && s.Name != "dlock" || !s.Offers(j.kind.mode) ||
			j.kind.points != nil && !onCurve ||
			s.Cases != nil && !slices.Contains(s.Cases, j.kind.name)
	})
}

// present returns the subjects that can run here. It prints why the others
// cannot.
func (j job) present() []subjects.Subject {
	return slices.DeleteFunc(j.subjects(), func(s subjects.Subject) bool {
		if s.Missing == nil {
			return false
		}
		err := s.Missing()
		if err != nil {
			fmt.Printf("%s: skipped: %s: %v\n", j.name(), s.Name, err)
		}
		return err != nil
	})
}

// selection returns the jobs that match one of the comma-separated patterns: a
// store, a case, or the name of a case for all stores. With grow there are curves
// of growth, too.
func selection(only string, grow bool) (selected []job, err error) {
	patterns := strings.Split(only, ",")
	curved := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !slices.Contains(storeNames(), p) })
	if len(curved) == 0 {
		curved = growthStores
	}
	found := make(map[string]bool)
	for _, j := range jobs() {
		matches := grow && j.kind.points != nil && slices.Contains(curved, j.store.Name)
		for _, p := range patterns {
			whole := (only == "" || p == j.store.Name) && j.kind.points == nil
			if whole || p == j.name() || p == j.kind.name {
				matches, found[p] = true, true
			}
		}
		if matches {
			selected = append(selected, j)
		}
	}
	for _, p := range patterns {
		if !found[p] {
			return nil, fmt.Errorf("--only %s: nothing to measure; there are the stores %s, each with cases like memory/solo",
				p, strings.Join(storeNames(), ", "))
		}
	}
	return selected, nil
}

// jobs returns all cases.
func jobs() (all []job) {
	for _, s := range subjects.Stores {
		for _, k := range kinds {
			if j := (job{s, k}); len(j.subjects()) > 0 {
				all = append(all, j)
			}
		}
	}
	return all
}

func storeNames() (names []string) {
	for _, s := range subjects.Stores {
		names = append(names, s.Name)
	}
	return names
}
