package sqllock

import (
	"context"
	"errors"
	"net"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// A request may be carried out after its caller has left: the network delivers it
// late, the server makes it wait for a row and does not notice that the connection
// is closed, or it shares a transaction with others that goes on. The Release that
// follows would find nothing, and the lock would stay for its whole TTL. So such
// attempts are recorded; see package attempts.

// leaveAttempt records that the caller of j leaves while j goes on in a transaction
// that it shares with others.
func (s *Store) leaveAttempt(j *batch.Job) {
	if j.Owner == (driver.Owner{}) {
		return
	}
	ended := s.attempts.Leave(j.Name, j.Owner)
	go func() { ended(!s.mayHappen(j.Wait())) }()
}

// loseAttempt records j if the error leaves open whether it will be carried out.
func (s *Store) loseAttempt(j *batch.Job, err error) {
	if j.Owner != (driver.Owner{}) && s.mayHappen(err) {
		s.attempts.Unanswered(j.Name, j.Owner)
	}
}

// mayHappen reports whether a call that failed with err may still be carried out.
func (s *Store) mayHappen(err error) bool {
	switch {
	case err == nil, s.facts.Answered == nil, s.facts.Answered(err), errors.Is(err, driver.ErrClosed):
		return false
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return !ok || failed.Op != "dial" // without a connection nothing is sent
}

// undo gives up what owner has, on behalf of an attempt that may be carried out
// late. It works while the store is being closed.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	var released, left bool
	err := s.writeAnyway(ctx, func() (err error) {
		run := s.run()
		if released, err = run.Changed(ctx, statement.Release, name, owner.Hex(), int64(0)); err != nil {
			return err
		}
		left, err = run.Changed(ctx, statement.GiveUp, name, owner.Hex())
		return err
	})
	if released || left {
		s.waiters.notify(name)
	}
	if err == nil && !released {
		return driver.ErrNotHeld
	}
	return err
}
