package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memlock"
)

// A check that cannot fail is no check. Every store here is broken on purpose,
// in one way, and the kit must name the clause that it breaks.
var brokenStores = []struct {
	mistake string
	clause  string
	open    func(*memlock.Store) driver.Store // one store, which all clients share
}{
	// What articles about distributed locks get wrong: broken_articles_test.go.
	{"SETNX without an expiry: a dead holder keeps the lock", "expiry",
		func(m *memlock.Store) driver.Store { return neverExpires{m} }},
	{"SETNX, then EXPIRE: cut off in between, it never expires", "expiry-atomic",
		func(m *memlock.Store) driver.Store { return setThenExpire{m} }},
	{"DEL without comparing the owner", "release-owner",
		func(m *memlock.Store) driver.Store { return plainDelete{m} }},
	{"GET and compare, then DEL", "release-atomic",
		func(m *memlock.Store) driver.Store { return getThenDelete{m} }},
	{"the value is the expiry by the client's clock, overtaken with GETSET", "clock-skew",
		func(m *memlock.Store) driver.Store { return clientClock{Store: m, values: newShelf[time.Time]()} }},
	{"a watchdog that renews with SET", "renew-expired",
		func(m *memlock.Store) driver.Store { return renewBySet{m} }},
	{"SELECT, and INSERT if there was none", "exclusion-first",
		func(m *memlock.Store) driver.Store { return selectThenInsert{m} }},
	{"re-entry counted in the store: as many Releases as Acquires", "acquire-idempotent",
		func(m *memlock.Store) driver.Store { return counted{m, newShelf[int]()} }},
	{"a batch that keeps what it got when it fails", "batch-none",
		func(m *memlock.Store) driver.Store { return partialBatch{m} }},

	// Owners, tokens, time: broken_core_test.go.
	{"half the TTL", "expiry",
		func(m *memlock.Store) driver.Store { return halfTTL{m} }},
	{"the same owner is refused", "acquire-idempotent",
		func(m *memlock.Store) driver.Store { return refusesOwner{m, newShelf[driver.Owner]()} }},
	{"the same owner does not restart the TTL", "acquire-restarts-ttl",
		func(m *memlock.Store) driver.Store { return keepsTTL{m, newShelf[driver.Grant]()} }},
	{"Acquire waits", "acquire-no-wait",
		func(m *memlock.Store) driver.Store { return waits{m} }},
	{"the token starts again after a release", "token-order",
		func(m *memlock.Store) driver.Store { return newRenumbered(m, func(last uint64) uint64 { return 1 }) }},
	{"tokens fall", "token-after-expiry",
		func(m *memlock.Store) driver.Store {
			return newRenumbered(m, func(last uint64) uint64 { return 1<<40 - last })
		}},
	{"the token is zero", "grant",
		func(m *memlock.Store) driver.Store { return newRenumbered(m, func(last uint64) uint64 { return 0 }) }},
	{"Release only says that it did", "release-frees",
		func(m *memlock.Store) driver.Store { return keepsLock{m} }},
	{"Release ignores the token", "release-token",
		func(m *memlock.Store) driver.Store { return ignoresToken{m} }},
	{"Release insists on a token", "release-undo",
		func(m *memlock.Store) driver.Store { return insistsOnToken{m} }},
	{"Renew goes by the name alone", "renew-owner",
		func(m *memlock.Store) driver.Store { return renewsAnyone{m, newShelf[driver.Owner]()} }},
	{"Renew needs the token", "renew-without-token",
		func(m *memlock.Store) driver.Store { return renewsByToken{m} }},
	{"Renew without a token draws a new one", "renew-without-token",
		func(m *memlock.Store) driver.Store { return renewsWithNewToken{m} }},
	{"Renew stops at the first error", "renew-batch",
		func(m *memlock.Store) driver.Store { return stopsAtError{m} }},
	{"the last Renew counts, also one for less", "renew-never-shortens",
		func(m *memlock.Store) driver.Store { return lastRenewCounts{m, newShelf[time.Time]()} }},
	{"the last Acquire counts, also one for less", "acquire-never-shortens",
		func(m *memlock.Store) driver.Store { return lastAcquireCounts{m, newShelf[time.Time]()} }},
	{"Renew returns a nil for each", "renew-nil",
		func(m *memlock.Store) driver.Store { return nilForEach{m} }},
	{"Renew reads first and writes later", "renew-atomic",
		func(m *memlock.Store) driver.Store { return lookThenRenew{m} }},
	{"a context that is done is ignored", "cancelled-context",
		func(m *memlock.Store) driver.Store { return ignoresContext{m} }},
	{"an attempt that was cut off was refused, it says", "cancelled-midway",
		func(m *memlock.Store) driver.Store { return cutOffIsHeld{m} }},
	{"the HeldError names the caller as the holder", "held-error",
		func(m *memlock.Store) driver.Store { return namesAsker{m} }},
	{"Close releases the locks", "close",
		func(m *memlock.Store) driver.Store { return closeReleases{m} }},
	{"Close does not report that the locks end", "close",
		func(m *memlock.Store) driver.Store { return closesSilently{closeReleases{m}} }},
	{"Close reports that the locks have ended", "close",
		func(m *memlock.Store) driver.Store {
			return &reportsLate{closesSilently: closesSilently{closeReleases{m}}}
		}},
	{"locks end with the store, which never reports a loss", "traits",
		func(m *memlock.Store) driver.Store { return endsUnreported{closeReleases{m}} }},
	{"Traits change once the store is used", "traits",
		func(m *memlock.Store) driver.Store { return &moody{Store: m} }},

	// What is carried out late: broken_late_test.go.
	{"an attempt that comes after its release stays", "late-attempt",
		func(m *memlock.Store) driver.Store { return forgetsAttempts{m} }},
	{"an attempt in a queue that comes after its release stays", "late-attempt-fair",
		func(m *memlock.Store) driver.Store { return forgetsAttempts{m} }},

	// Names, lists, waiting, queues: broken_extensions_test.go.
	{"names without case", "names-distinct",
		func(m *memlock.Store) driver.Store { return renamed{m, strings.ToLower} }},
	{"names cut off after 64 bytes", "names-distinct",
		func(m *memlock.Store) driver.Store {
			return renamed{m, func(name string) string { return name[:min(64, len(name))] }}
		}},
	{"names without spaces at the end", "names-distinct",
		func(m *memlock.Store) driver.Store {
			return renamed{m, func(name string) string { return strings.TrimRight(name, " ") }}
		}},
	{"a name waits for what is below it", "names-distinct",
		func(m *memlock.Store) driver.Store { return parents{m} }},
	{"List with LIKE", "list-prefix",
		func(m *memlock.Store) driver.Store { return listLike{m} }},
	{"List of what expired too", "list-gone",
		func(m *memlock.Store) driver.Store { return listsExpired{m, newShelf[driver.Info]()} }},
	{"Find takes the first that List yields", "find",
		func(m *memlock.Store) driver.Store { return looksByPrefix{m} }},
	{"Break ignores the token", "break-token",
		func(m *memlock.Store) driver.Store { return breaksAny{m} }},
	{"no wake-up at all", "watch-release",
		func(m *memlock.Store) driver.Store { return neverWakes{m} }},
	{"Watch returns before it is subscribed", "watch-race",
		func(m *memlock.Store) driver.Store { return watchesLate{m} }},
	{"stop does not stop", "watch-stop",
		func(m *memlock.Store) driver.Store { return neverStops{m} }},
	{"the subscription ends with its context", "watch-context",
		func(m *memlock.Store) driver.Store { return watchesContext{m} }},
	{"expiries are watched, it says", "watch-expiry",
		func(m *memlock.Store) driver.Store { return claimsExpiry{m} }},
	{"wakes come from a goroutine that does not end", "nothing-left",
		func(m *memlock.Store) driver.Store { return leaks{m} }},
	{"fair requests are granted in the order after the release", "fair-order",
		func(m *memlock.Store) driver.Store { return unfair{m} }},
	{"last come, first served", "fair-order",
		func(m *memlock.Store) driver.Store {
			return &lastFirst{Store: m, queues: make(map[string][]driver.Owner)}
		}},
	{"the holder queues behind itself", "fair-holder",
		func(m *memlock.Store) driver.Store { return holderQueues{m} }},
	{"a waiter that gave up stays in the queue", "fair-cancelled",
		func(m *memlock.Store) driver.Store { return keepsQuitters{m} }},
	{"a dead waiter stays in the queue", "fair-dead",
		func(m *memlock.Store) driver.Store { return keepsDead{m} }},
	{"watched places last, it says", "fair-watched",
		func(m *memlock.Store) driver.Store { return claimsQueues{m} }},
	{"an attempt without Queue takes a place", "fair-no-queue",
		func(m *memlock.Store) driver.Store { return alwaysQueues{m} }},
	{"a dead waiter keeps its place for the TTL of the lock", "fair-seconds",
		func(m *memlock.Store) driver.Store { return longPlaces{m, newShelf[time.Duration]()} }},
	{"a refusal does not say that there is a queue", "fair-queued",
		func(m *memlock.Store) driver.Store { return hidesQueue{m} }},
	{"callers that are not fair wait beside the queue", "client-starves",
		func(m *memlock.Store) driver.Store { return hidesQueue{m} }},

	// Tokens of a step: broken_step_test.go.
	{"tokens of the step are promised and not set aside", "token-after-expiry",
		func(m *memlock.Store) driver.Store { return promisesStep{m} }},
	{"other tokens for an owner that asks again", "token-repeated",
		func(m *memlock.Store) driver.Store { return forgetsGrant{m, newShelf[driver.Owner]()} }},
	{"the token that is listed is not one of the holder's", "token-shown",
		func(m *memlock.Store) driver.Store { return listsAnother{m} }},
	{"Break wants the first token of the step", "break-step",
		func(m *memlock.Store) driver.Store { return breaksFirst{m} }},

	// Shared locks and permits: broken_mode_test.go.
	{"shared holders take turns", "shared-together",
		func(m *memlock.Store) driver.Store { return takesTurns{m} }},
	{"shared and exclusive locks do not see each other", "shared-excluded",
		func(m *memlock.Store) driver.Store { return layouts{m} }},
	{"shared holders keep an exclusive waiter out for ever", "shared-writer",
		func(m *memlock.Store) driver.Store { return starvesWriters{m} }},
	{"an exclusive waiter that gave up keeps shared ones out", "shared-writer-gone",
		func(m *memlock.Store) driver.Store { return deadWriters{m} }},
	{"a shared holder is refused when it asks again", "shared-repeated",
		func(m *memlock.Store) driver.Store { return blocksReaders{m, newShelf[bool]()} }},
	{"one expiry for all shares: living holders keep dead ones alive", "shared-expiry",
		func(m *memlock.Store) driver.Store { return oneExpiry{m, newShelf[[]driver.Grant]()} }},
	{"the release of one share ends all", "shared-together",
		func(m *memlock.Store) driver.Store { return releasesAll{m} }},
	{"a downgrade in two steps", "shared-downgrade",
		func(m *memlock.Store) driver.Store { return twoSteps{m} }},
	{"a downgrade wakes no waiter", "shared-wake",
		func(m *memlock.Store) driver.Store { return quietDowngrade{m, newShelf[bool]()} }},
	{"shared waiters pass a fair exclusive one", "shared-fair",
		func(m *memlock.Store) driver.Store { return unfair{m} }},
	{"one of several shared holders is listed", "shared-list",
		func(m *memlock.Store) driver.Store { return listsOne{m} }},
	{"to break one share breaks all", "shared-break",
		func(m *memlock.Store) driver.Store { return breaksAll{m} }},
	{"one permit too many", "limit",
		func(m *memlock.Store) driver.Store { return oneMore{m} }},
	{"the release of one permit frees all", "limit-permits",
		func(m *memlock.Store) driver.Store { return releasesAll{m} }},
	{"the last limit counts", "limit-mismatch",
		func(m *memlock.Store) driver.Store { return lastLimit{m} }},
	{"a name is a semaphore for ever", "limit-mismatch",
		func(m *memlock.Store) driver.Store {
			return keepsLimit{m, newShelf[driver.Mode](), newShelf[bool]()}
		}},
	{"permits are granted in the order after the release", "limit-fair",
		func(m *memlock.Store) driver.Store { return unfair{m} }},
	{"one of several permits is listed", "limit-list",
		func(m *memlock.Store) driver.Store { return listsOne{m} }},
	{"to break one permit breaks all", "limit-break",
		func(m *memlock.Store) driver.Store { return breaksAll{m} }},
}

// TestBrokenStores demands that the clause is named each time. Others may be
// broken with it: a lock that never expires is never given to the next either.
//
// Some mistakes show only in a window of milliseconds, which a machine that is
// busy with other things can miss: then the kit gets another try.
func TestBrokenStores(t *testing.T) {
	const tries = 3
	named := newShelf[bool]() // by any store
	var ran atomic.Int64
	t.Cleanup(func() {
		if int(ran.Load()) == len(brokenStores) { // and not a selection
			everyClauseCanFail(t, named)
		}
	})
	for _, broken := range brokenStores {
		t.Run(strings.ReplaceAll(broken.mistake, " ", "-"), func(t *testing.T) {
			outcome := startCheck(t, drivertest.CheckImpatiently, quick(broken.open(memlock.New())))
			t.Parallel()
			defer ran.Add(1)
			for try := 1; ; try++ {
				clauses := clausesOf(t, <-outcome)
				for _, clause := range clauses {
					named.put(clause, true)
				}
				t.Logf("try %d names %q", try, clauses)
				if slices.Contains(clauses, broken.clause) {
					return
				}
				if try == tries {
					t.Fatalf("%s: the kit does not name %q in %d tries", broken.mistake, broken.clause, tries)
				}
				outcome = startCheck(t, drivertest.CheckImpatiently, quick(broken.open(memlock.New())))
			}
		})
	}
}

// everyClauseCanFail: a clause that no broken store breaks checks nothing.
func everyClauseCanFail(t *testing.T, named *shelf[bool]) {
	elsewhere := map[string]string{
		"exclusion-processes": "TestBrokenProcesses",
		"killed-process":      "TestBrokenProcesses",
		"names-illegal":       "no store can break it: driver and dlock keep it",
	}
	for _, c := range drivertest.Clauses() {
		if elsewhere[c.ID] == "" && !named.get(c.ID) {
			t.Errorf("no broken store breaks %q", c.ID)
		}
	}
}

// TestSoundStore makes sure that what TestBrokenStores sees is the mistakes.
func TestSoundStore(t *testing.T) {
	outcome := startCheck(t, drivertest.Check, quick(memlock.New()))
	t.Parallel()
	if err := <-outcome; err != nil {
		t.Error(err)
	}
}

// checks limits how many run at once; each waits most of the time.
var checks = make(chan struct{}, 8)

// startCheck is called before t.Parallel, so that the number of processors does
// not limit how many stores wait together.
func startCheck(t *testing.T, check func(context.Context, drivertest.Config) error, cfg drivertest.Config) <-chan error {
	outcome := make(chan error, 1)
	ctx := t.Context()
	go func() {
		checks <- struct{}{}
		defer func() { <-checks }()
		outcome <- check(ctx, cfg)
	}()
	return outcome
}

// quick is a configuration for a store in memory, where nothing takes long.
func quick(store driver.Store) drivertest.Config {
	return drivertest.Config{
		Open:     func(context.Context) (driver.Store, error) { return store, nil },
		TTL:      200 * time.Millisecond,
		Parallel: 32,
		Delayed: func(context.Context) (driver.Store, func() func(), error) {
			d := newDelayed(store)
			return d, d.hold, nil
		},
		Skewed: func(_ context.Context, by time.Duration) (driver.Store, error) {
			if s, ok := store.(clientClock); ok {
				s.skew = by
				return s, nil
			}
			return store, nil // its time does not come from its clients
		},
	}
}

// clausesOf returns the clauses that Check named.
func clausesOf(t *testing.T, err error) (names []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("want an errors.Join of violations, got: %v", err)
	}
	for _, one := range joined.Unwrap() {
		v, ok := errors.AsType[*drivertest.Violation](one)
		if !ok || v.Clause == "" || v.Explanation == "" || v.Detail == "" {
			t.Fatalf("want a complete *Violation, got: %#v", one)
		}
		names = append(names, v.Clause)
	}
	return names
}

// TestCheckReportsOpen: a store that cannot be opened breaks no clause.
func TestCheckReportsOpen(t *testing.T) {
	refused := errors.New("refused")
	err := drivertest.Check(t.Context(), drivertest.Config{
		Open: func(context.Context) (driver.Store, error) { return nil, refused },
	})
	if _, violation := errors.AsType[*drivertest.Violation](err); !errors.Is(err, refused) || violation {
		t.Errorf("want the error of Open, got: %v", err)
	}
	if err := drivertest.Check(t.Context(), drivertest.Config{}); err == nil {
		t.Error("want an error for a Config without Open")
	}
}

// TestWorkerStartsNoWorkers: a TestMain that does not call Work must not start the tests again without end.
func TestWorkerStartsNoWorkers(t *testing.T) {
	t.Setenv(drivertest.WorkEnv, "{}")
	err := drivertest.Check(t.Context(), drivertest.Config{
		Open: func(context.Context) (driver.Store, error) { return memlock.New(), nil },
	})
	if err == nil || !strings.Contains(err.Error(), "drivertest.Work") {
		t.Errorf("want an error that says to call Work, got: %v", err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(drivertest.WorkEnv) != "" {
		os.Exit(drivertest.Work(openFromEnvironment))
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, "a store that is broken on purpose must fail the kit, a sound one must pass it")
	}
	os.Exit(code)
}
