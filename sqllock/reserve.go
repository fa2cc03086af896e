package sqllock

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
)

const (
	// minReserving is the smallest pool of which the store keeps a connection for renewals. A smaller one
	// may have none to spare: a program that needs all at a time would wait for ever.
	minReserving = 4
	// reserveIdle is how long the store keeps the connection at least without renewing.
	reserveIdle = 30 * time.Second
)

// reserve is the connection that the store keeps for renewals while it makes some: the program may use all
// others for long, and locks must be renewed meanwhile.
type reserve struct {
	free chan *sql.Conn // holds an element while no renewal uses it; nil before the first
	idle *time.Timer
	ttl  atomic.Int64 // the longest one of the last renewal: the next one is due within it
}

func newReserve() *reserve {
	r := &reserve{free: make(chan *sql.Conn, 1)}
	r.free <- nil
	r.idle = time.AfterFunc(reserveIdle, func() {
		select {
		case conn := <-r.free:
			putConn(conn)
			r.free <- nil
		default: // it is in use, which begins the time again
		}
	})
	return r
}

// close gives the connection back. No renewal uses it any more, or ctx ends first.
func (r *reserve) close(ctx context.Context) {
	r.idle.Stop()
	select {
	case conn := <-r.free:
		putConn(conn)
	case <-ctx.Done():
	}
}

func putConn(conn *sql.Conn) {
	if conn != nil {
		_ = conn.Close() // a pool that is closed has closed it
	}
}

// onReserve calls renew with the connection for renewals, or with nil, which stands for any of the pool. What
// failed may be made again, since renewing twice does no harm.
func (s *Store) onReserve(ctx context.Context, renew func(*sql.Conn) error) (err error) {
	if s.db.Stats().MaxOpenConnections < minReserving { // or without a limit
		return renew(nil)
	}
	var conn *sql.Conn
	select {
	case conn = <-s.reserve.free:
	default: // another renewal uses it
		return renew(nil)
	}
	defer func() {
		s.reserve.idle.Reset(max(reserveIdle, time.Duration(s.reserve.ttl.Load())))
		s.reserve.free <- conn
	}()
	if conn == nil {
		if conn, err = s.db.Conn(ctx); err != nil {
			conn = nil
			return err
		}
	}
	if err = renew(conn); err == nil || ctx.Err() == nil && s.isRetryable(err) && !s.facts.Classify(err).Ended {
		return err
	}
	lost := conn
	conn = nil
	// Discard waits for a COMMIT that goes on: see Store.inUnguardedTx.
	_, _ = detach.Call(ctx, detach.Go, func() error { sqldb.Discard(lost); return nil })
	if ctx.Err() == nil {
		err = renew(nil)
	}
	return err
}
