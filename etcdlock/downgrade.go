package etcdlock

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Downgrade implements driver.Downgrader. It changes the value of the key, which keeps its place.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	if err := s.ensureConnected(ctx); err != nil {
		return err
	}
	h, err := s.lockHold(ctx, holdID{grant.Name, grant.Owner}, false)
	if err != nil {
		return err
	}
	if h == nil {
		return driver.ErrNotHeld
	}
	return s.detached(ctx, h, func(ctx context.Context) outcome { return outcome{err: s.downgrade(ctx, h, grant.Token)} }).err
}

// downgrade sends a transaction that may be carried out twice, and late: it changes no other key
// than the one that the hold has now.
func (s *Store) downgrade(ctx context.Context, h *hold, token uint64) error {
	s.mu.Lock()
	was := *h
	s.mu.Unlock()
	if !was.held || was.mode.Limit > 0 || tokenOf(was.revision) != token {
		return driver.ErrNotHeld
	}
	t := txn{conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(was.key), "=", was.revision)}}
	if !was.mode.Shared {
		value := downgradedMark + strings.TrimPrefix(was.value, "{")
		t.then = []clientv3.Op{clientv3.OpPut(was.key, value, clientv3.WithIgnoreLease())}
	}
	reply, _, err := retry(ctx, s, t.send)
	if err != nil {
		return s.explain(ctx, err)
	}
	if !reply.Succeeded {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropLocked(h)
		return driver.ErrNotHeld
	}
	return nil
}
