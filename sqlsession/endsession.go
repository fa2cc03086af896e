package sqlsession

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// answerLimit is how long a connection of the pool may take to answer before the store tries
// another one: connections that idle in the pool may have died without a sign. It grows with
// every failure.
const answerLimit = time.Second

// endLost ends the session of a lost conn, and then the locks and attempts on it. Until then
// it is unknown whether the server holds them: the connection may have died without a sign,
// which the server may notice hours later.
func (s *Store) endLost(c *conn, locks []*heldLock) {
	found, err := s.endSession(s.ctx, c)
	var outcome error
	switch {
	case err != nil:
		outcome = driver.ErrClosed
	case !found:
		outcome = fmt.Errorf("%w: %w", driver.ErrNotHeld, errConnGone)
	}
	for _, h := range locks {
		s.settle(h, outcome)
	}
}

// endSession ends the session of a conn over another connection, and returns when the server
// has freed its locks. found reports whether the session still existed. If the server does
// not answer or the user lacks the right, endSession tries again until ctx ends.
func (s *Store) endSession(ctx context.Context, c *conn) (found bool, err error) {
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: callLimit}
	for limit := answerLimit; ; {
		exists, err := s.killSession(ctx, c, limit)
		found = found || exists
		switch {
		case err != nil:
			c.ending.Store(&err)
			limit = min(2*limit, callLimit)
		case !exists:
			return found, nil
		}
		if err := pause.Wait(ctx); err != nil {
			return found, err
		}
	}
}

// killSession asks the server once to end the session of a conn. It reports whether the
// session still exists.
func (s *Store) killSession(ctx context.Context, c *conn, limit time.Duration) (exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	raw, err := s.connection(ctx)
	if err != nil {
		return false, err
	}
	session := strings.NewReplacer("{id}", c.id, "{guard}", c.guard)
	err = raw.QueryRowContext(ctx, session.Replace(s.server.findSession)).Scan(&exists)
	if err == nil && exists {
		err = execAll(ctx, raw, session.Replace(s.server.killSession))
	}
	if ctx.Err() != nil {
		newConn(raw).discard()
	} else {
		newConn(raw).giveBack()
	}
	return exists, err
}
