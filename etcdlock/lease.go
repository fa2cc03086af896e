package etcdlock

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// minTTL is the shortest etcd lease that a server with the usual election timeout grants.
const minTTL = 2 * time.Second

// lease is an etcd lease, which all locks with the same TTL share. The mu of the store guards all
// fields but the first two.
type lease struct {
	seconds int64    // the TTL to ask for
	busy    ctxMutex // held by the call that asks the server about this etcd lease

	id      clientv3.LeaseID // zero until it is granted
	ttl     time.Duration    // as granted
	sent    clock.Instant    // when the last request that renewed it was sent
	retryAt time.Time        // the janitor does not renew it before

	gone    bool // it has ended
	retired bool // it takes no new locks, and ends with its last one
	holds   map[*hold]struct{}
	// strayKeys are keys of no hold that may still appear, because a request to write or delete
	// them was not answered. Every renewal deletes them, and they end with the etcd lease.
	strayKeys map[string]struct{}
}

// slack is how old the last renewal may be when a lock is acquired. The TTL of a lock is shorter
// than that of its etcd lease by the slack.
func (l *lease) slack() time.Duration { return min(l.ttl/10, time.Second) }

// grantedTTL returns the TTL of a lock on this etcd lease.
func (l *lease) grantedTTL(asked time.Duration) time.Duration { return min(asked, l.ttl-l.slack()) }

// leaseFor returns the etcd lease of a hold, or the one for new locks with that TTL.
func (s *Store) leaseFor(h *hold, ttl time.Duration) *lease {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != nil {
		return h.lease
	}
	for l := range s.leases {
		switch {
		case l.ttl > 0 && s.ageLocked(l) > l.ttl && len(l.holds) == 0:
			s.forgetLeaseLocked(l) // it has ended, or is about to
		case l.seconds == seconds && !l.retired:
			return l
		}
	}
	l := &lease{seconds: seconds, busy: make(ctxMutex, 1), holds: make(map[*hold]struct{}), strayKeys: make(map[string]struct{})}
	s.leases[l] = struct{}{}
	return l
}

// renewIfOld renews the etcd lease, unless it was renewed a moment ago. A new one is granted. It
// returns errLeaseGone if the etcd lease has ended.
func (s *Store) renewIfOld(ctx context.Context, l *lease) error {
	if l.busy.lock(ctx) != nil {
		return unanswered(ctx)
	}
	defer l.busy.unlock()
	s.mu.Lock()
	gone, isNew, old := l.gone, l.id == 0, s.ageLocked(l) >= l.slack()
	s.mu.Unlock()
	switch {
	case gone:
		return errLeaseGone
	case isNew:
		return s.grant(ctx, l)
	case old:
		return s.keepAlive(ctx, l)
	}
	return nil
}

// ageLocked returns how long ago the etcd lease was renewed.
func (s *Store) ageLocked(l *lease) time.Duration { return s.clock.Now() - l.sent }

// grant asks the server for the etcd lease. If there is no answer, grant revokes the etcd lease.
func (s *Store) grant(ctx context.Context, l *lease) error {
	// The ID is chosen here, so that a repeated request asks for the same etcd lease.
	id := clientv3.LeaseID(rand.Int64N(math.MaxInt64-1) + 1)
	sent := s.clock.NoLaterThanNow()
	ttl, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (int64, error) {
		return c.grantLease(ctx, id, l.seconds)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		l.id, l.ttl, l.sent = id, time.Duration(ttl)*time.Second, sent
		return nil
	}
	s.forgetLeaseLocked(l)
	if rejectionOf(err) == nil {
		l.id = id
		if !s.revokeInBackgroundLocked(l) {
			s.leases[l] = struct{}{} // Close revokes it
		}
	}
	return s.explain(ctx, err)
}

// grantLease asks for an etcd lease, and renews it if an earlier request was granted.
func (c *conn) grantLease(ctx context.Context, id clientv3.LeaseID, seconds int64) (ttl int64, err error) {
	reply, err := c.leaser.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: seconds})
	if isError(err, rpctypes.ErrLeaseExist) {
		return c.keepAliveOnce(ctx, id)
	}
	return reply.GetTTL(), err
}

// keepAlive renews the etcd lease with one message. It does not use the loop of the client, which
// does not pause while there is no connection.
func (s *Store) keepAlive(ctx context.Context, l *lease) error {
	sent := s.clock.NoLaterThanNow()
	ttl, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (int64, error) {
		return c.keepAliveOnce(ctx, l.id)
	})
	if err == nil && ttl > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.ttl, l.sent = time.Duration(ttl)*time.Second, sent
		return nil
	}
	if err == nil || isError(err, rpctypes.ErrLeaseNotFound) {
		s.leaseLost(l)
		return errLeaseGone
	}
	return s.explain(ctx, err)
}

func (c *conn) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // of the stream
	defer cancel()
	stream, err := c.leaser.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns why it failed
	reply, err := stream.Recv()
	_ = stream.CloseSend() // nothing else is sent
	return reply.GetTTL(), err
}

// leaseLost ends an etcd lease that the server does not know any more, and all its locks.
func (s *Store) leaseLost(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLeaseLocked(l)
	for h := range l.holds {
		s.keyLostLocked(h)
	}
}

// forgetLeaseLocked makes the next acquisition ask for a new etcd lease.
func (s *Store) forgetLeaseLocked(l *lease) {
	l.gone, l.retired = true, true
	delete(s.leases, l)
}

// revokeInBackgroundLocked revokes an etcd lease. It returns false if the store is closed.
func (s *Store) revokeInBackgroundLocked(l *lease) bool {
	return s.backgroundLocked(func() {
		ctx, cancel := context.WithTimeout(s.ctx, callLimit)
		defer cancel()
		s.revoke(ctx, l)
	})
}

// revoke ends an etcd lease on the server. If that fails, the etcd lease expires.
func (s *Store) revoke(ctx context.Context, l *lease) {
	_, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (*pb.LeaseRevokeResponse, error) {
		return c.leaser.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(l.id)}, grpc.WaitForReady(true))
	})
	if err != nil && !isError(err, rpctypes.ErrLeaseNotFound) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLeaseLocked(l)
}

// renewAndClean renews the etcd lease, unless it was renewed a moment ago, and deletes its stray
// keys. What it cannot delete ends with the etcd lease.
func (s *Store) renewAndClean(ctx context.Context, l *lease) error {
	if err := s.renewIfOld(ctx, l); err != nil {
		return err
	}
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(l.strayKeys))
	s.mu.Unlock()
	_ = s.deleteKeys(ctx, keys)
	return nil
}
