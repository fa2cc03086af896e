package sqllock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// idleStore returns a store without a database, for what it does without one.
func idleStore(t *testing.T) *Store {
	t.Helper()
	facts, tables, err := sqldb.Configure(Postgres, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{facts: facts, dialect: dialects[Postgres], tables: tables, statements: statement.NewSet(facts, tables),
		closing: make(chan struct{}), writing: make(chan struct{}, serverConns), renewing: make(chan struct{}, spareConns)}
	s.waiters.PollGroup = sqldb.NewPollGroup(func(name string, _ *waiter) any { return name })
	s.reading, s.reserve = s.writing, newReserve()
	s.batches.Writing, s.batches.Alone, s.batches.Batch = s.writing, s.runAlone, s.runBatch
	s.attempts = attempts.New(s.undo)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// TestCloseLetsATransactionEnd: Close gives a transaction that has begun time to end.
func TestCloseLetsATransactionEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := idleStore(t)
		s.writing <- struct{}{}
		go func() {
			<-time.After(closeGrace / 2)
			if s.ctx.Err() != nil {
				t.Error("the transaction was interrupted")
			}
			<-s.writing
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseDoesNotWaitForever: Close returns although the call of a caller waits for a row that
// another program keeps locked.
func TestCloseDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := idleStore(t)
		s.writing <- struct{}{}
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		<-time.After(2 * backgroundLimit)
		synctest.Wait()
		if len(closed) == 0 {
			t.Error("Close has not returned")
		}
		<-s.writing
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestNewRejectsUnknownSchemes(t *testing.T) {
	t.Parallel()
	for _, scheme := range []Scheme{-1, 2, 7} {
		if _, err := New(t.Context(), nil, &Options{Dialect: SQLite, Scheme: scheme}); err == nil {
			t.Errorf("New with scheme %d succeeds", scheme)
		}
	}
}
