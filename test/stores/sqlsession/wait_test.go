package sqlsession_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
)

// TestManyWaiters: a thousand goroutines that wait cost three connections and a
// few queries, and all of them get their lock soon after it is free.
func TestManyWaiters(t *testing.T) {
	eachAlone(t, func(t *testing.T, s setup) {
		const waiters = 1000
		names := waiters
		if s.scheme == sqlsession.ForUpdate {
			names = 100 // their holder needs as many connections
		}
		holder := s.store(t, s.open(t))
		db := s.open(t)
		client := dlock.New(s.store(t, db), &dlock.Options{RequestTimeout: await.Limit}) // the first attempts share one connection
		defer client.Close()
		for i := range names {
			mustAcquire(t, holder, request(fmt.Sprint(i)))
		}
		var waiting sync.WaitGroup
		errs := make(chan error, waiters)
		for i := range waiters {
			waiting.Go(func() {
				// By itself it tries again after minutes.
				errs <- client.Do(t.Context(), fmt.Sprint(i%names), func(context.Context) error { return nil }, dlock.WithTTL(10*time.Minute))
			})
		}
		most := 0
		observe := func() bool {
			most = max(most, db.Stats().OpenConnections)
			return false
		}
		// On a busy machine it takes a while until all of them wait: what they cost
		// from then on shows in the cheapest of several spans.
		admin := s.open(t)
		const (
			span  = 3 * time.Second // PostgreSQL publishes its statistics once a second
			spans = 8
			cheap = 60 // queries a second
		)
		rate := math.Inf(1)
		for i := 0; i < spans && rate > cheap; i++ {
			before, end := s.questions(t, admin), time.Now().Add(span)
			await.Until(t, "the span has ended", func() bool { return observe() || time.Now().After(end) })
			// The holder's own connections are probed once a second.
			rate = min(rate, float64(s.questions(t, admin)-before)/span.Seconds()-float64(holderConns(s, names)))
		}
		if rate > cheap {
			t.Errorf("%d waiters make %.0f queries a second", waiters, rate)
		}
		if most > 3 {
			t.Errorf("%d waiters use %d connections, want at most 3", waiters, most)
		}
		check(t, holder.Close())
		start := time.Now()
		done := make(chan struct{})
		go func() { waiting.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatal("not all got their lock")
		}
		took := time.Since(start)
		close(errs)
		for err := range errs {
			check(t, err)
		}
		t.Logf("%.0f queries a second, %d connections, all served in %v", rate, most, took)
	})
}

// holderConns returns how many connections hold so many locks and are counted when they are
// probed: PostgreSQL does not count statements within a transaction.
func holderConns(s setup, names int) int {
	switch {
	case s.scheme == sqlsession.Session:
		return 1
	case s.driver == "pgx":
		return 0
	}
	return names
}
