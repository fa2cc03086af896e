package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	dlock "github.com/dlock-go/dlock/driver"
)

// noServer is a database whose connections answer nothing.
type noServer struct{ driver.Conn }

func (noServer) Connect(context.Context) (driver.Conn, error) { return noServer{}, nil }
func (noServer) Driver() driver.Driver                        { return nil }
func (noServer) Close() error                                 { return nil }

// TestReserveIsKeptUntilTheNextRenewal: the store keeps its connection for renewals for as long as the locks last
// that it renewed, and then gives it back.
func TestReserveIsKeptUntilTheNextRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := idleStore(t)
		s.db = sql.OpenDB(noServer{})
		defer s.db.Close()
		s.db.SetMaxOpenConns(minReserving)
		const ttl = 10 * time.Minute
		for _, c := range []struct {
			ttl, after time.Duration
			kept       int
		}{{ttl, ttl - time.Second, 1}, {ttl, ttl + time.Second, 0}, {time.Second, reserveIdle - time.Second, 1}, {time.Second, reserveIdle + time.Second, 0}} {
			_ = s.Renew(t.Context(), []dlock.Grant{{Name: "x", TTL: c.ttl, Handle: listed{}}})
			_ = s.onReserve(t.Context(), func(*sql.Conn) error { return nil })
			<-time.After(c.after)
			synctest.Wait()
			if kept := s.db.Stats().InUse; kept != c.kept {
				t.Errorf("%v after a renewal with a TTL of %v: %d connections are kept, want %d", c.after, c.ttl, kept, c.kept)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
