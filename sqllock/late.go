package sqllock

import (
	"context"
	"errors"
	"net"

	"github.com/dlock-go/dlock/driver"
)

// A request may be carried out after its caller has left: the network delivers it
// late, the server makes it wait for a row and does not notice that the connection
// is closed, or it shares a transaction with others that goes on. The Release that
// follows would find nothing, and the lock would stay for its whole TTL. So such
// attempts are recorded; see package attempts.

// leaveAttempt records that the caller of j leaves while j goes on in a transaction
// that it shares with others.
func (s *Store) leaveAttempt(j *job) {
	if j.owner == (driver.Owner{}) {
		return
	}
	ended := s.attempts.Leave(j.name, j.owner)
	go func() {
		<-j.done
		ended(!s.mayHappen(j.err))
	}()
}

// loseAttempt records j if the error leaves open whether it is carried out yet.
func (s *Store) loseAttempt(j *job, err error) {
	if j.owner != (driver.Owner{}) && s.mayHappen(err) {
		s.attempts.Lost(j.name, j.owner)
	}
}

// mayHappen reports whether something that failed with err may be carried out yet.
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
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var released, left bool
	err := s.persist(ctx, func() (err error) {
		run := s.each()
		if released, err = run.changed(ctx, release, name, owner.Hex(), int64(0)); err != nil {
			return err
		}
		left, err = run.changed(ctx, giveUp, name, owner.Hex())
		return err
	})
	if released || left {
		s.watchers.wake(name)
	}
	if err == nil && !released {
		return driver.ErrNotHeld
	}
	return err
}
