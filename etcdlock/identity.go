package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// nameKey is the key with the cluster's name. It is no lock's: it has no '/'.
const nameKey = "dlock-server"

// nameTTL is how long it stays if the one who gave it is killed.
const nameTTL = 24 * time.Hour

// Identify implements driver.Identifier: all members of a cluster are one. The number
// that a cluster has is made of its configuration, and clusters that were configured alike
// have the same. So the first who asks gives it a name, at random, which ends with that
// store. A user who may write only below the prefix has it there.
func (s *Store) Identify(ctx context.Context) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	name, err := s.name(ctx, nameKey)
	if errors.Is(err, rpctypes.ErrPermissionDenied) && s.prefix != "" {
		name, err = s.name(ctx, s.prefix+nameKey)
	}
	if err != nil {
		return "", s.failure(ctx, err)
	}
	return name, nil
}

// name reads the name under a key, or gives one.
func (s *Store) name(ctx context.Context, key string) (string, error) {
	there, err := s.get(ctx, key)
	if err != nil {
		return "", err
	}
	if len(there.Kvs) > 0 {
		return string(there.Kvs[0].Value), nil
	}
	id, err := s.leaseName(ctx)
	if err != nil {
		return "", err
	}
	own := driver.NewOwner().Hex()
	name := own
	err = s.try(ctx, func(ctx context.Context, c *conn) error {
		reply, err := c.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, own, clientv3.WithLease(id))).
			Else(clientv3.OpGet(key)).Commit()
		if err == nil && !reply.Succeeded { // another's, or of a try before
			name = string(reply.Responses[0].GetResponseRange().Kvs[0].Value)
		}
		return err
	})
	if err == nil && name == own && s.named(id) {
		return own, nil
	}
	s.background(func() { s.giveBack(id) })
	switch {
	case err != nil:
		return "", err
	case name == own: // but the store is closed
		return "", driver.ErrClosed
	}
	return name, nil
}

// leaseName returns a lease for a name. One that was perhaps granted unheard is given back.
func (s *Store) leaseName(ctx context.Context) (clientv3.LeaseID, error) {
	id := newLeaseID()
	err := s.try(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.grantLease(ctx, id, int64(nameTTL/time.Second))
		return err
	})
	if err != nil && !isCertain(err) {
		s.background(func() { s.giveBack(id) })
	}
	return id, err
}

// named takes note of the name's lease, for Close.
func (s *Store) named(id clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.naming = id
	return true
}
