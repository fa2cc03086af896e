package etcdlock

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/span"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// handle is the Handle of a grant: its key, by which another store can release the lock.
type handle string

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	id := holdID{grant.Name, grant.Owner}
	h, err := s.lockHold(ctx, id, false)
	if err != nil { // an attempt is under way: what it gets has to be released
		s.mu.Lock()
		defer s.mu.Unlock()
		s.background(func() {
			s.withHold(id, func(ctx context.Context, h *hold) { _ = s.release(ctx, h, grant.Token) }) // else it expires
		})
		return err
	}
	if h == nil {
		return s.releaseForeign(ctx, grant)
	}
	return s.detached(ctx, h, func(ctx context.Context) outcome { return outcome{err: s.release(ctx, h, grant.Token)} }).err
}

// withHold calls do for a hold, if there is one, when no call uses it any more.
func (s *Store) withHold(id holdID, do func(ctx context.Context, h *hold)) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*callLimit) // for the call under way, and then for do
	defer cancel()
	h, err := s.lockHold(ctx, id, false)
	if h == nil || err != nil {
		return
	}
	defer h.busy.unlock()
	do(ctx, h)
}

// releaseForeign releases a lock that another store of the same server acquired, or this one and
// lost. The token belongs to one acquisition only.
func (s *Store) releaseForeign(ctx context.Context, grant driver.Grant) error {
	key, ok := grant.Handle.(handle)
	if !ok || grant.Token == 0 {
		return driver.ErrNotHeld
	}
	return s.deleteKey(ctx, string(key), int64(span.Number(grant.Token)))
}

// release gives up what the hold has. Without an answer the hold stays as it is: it is not
// renewed any more, and deleted when it expires.
func (s *Store) release(ctx context.Context, h *hold, token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, revision, held := h.key, h.revision, h.held
	if token != 0 && held && tokenOf(revision) != token {
		return driver.ErrNotHeld
	}
	if h.lease == nil {
		s.drop(h)
		return driver.ErrNotHeld
	}
	var opts []clientv3.OpOption
	if h.unconfirmed && revision != 0 { // a late write of the same key would not be the grant
		opts = append(opts, clientv3.WithPrevKV())
	}
	s.mu.Unlock()
	// No other hold has that key: see newKey.
	tries := 0
	reply, err := try(ctx, s, func(ctx context.Context, c *conn) (*clientv3.DeleteResponse, error) {
		tries++
		return c.kv.Delete(ctx, key, opts...)
	})
	s.mu.Lock()
	if tries > 1 || err != nil && rejectionOf(err) == nil {
		// A deletion that was not answered may still be carried out: the key must not be used again.
		h.unconfirmed = h.unconfirmed || h.lease != nil && h.key == key
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	s.drop(h)
	switch {
	case !held && revision != 0: // a place; without a revision it was never known what there is
		return driver.ErrNotHeld
	case reply.Deleted > 0 && (opts == nil || reply.PrevKvs[0].CreateRevision == revision):
		return nil
	case tries > 1:
		return errMaybeReleased
	}
	return driver.ErrNotHeld
}

// leaveQueue gives up the place of a waiter that stopped waiting without Release.
func (s *Store) leaveQueue(id holdID) {
	s.withHold(id, func(ctx context.Context, h *hold) {
		s.mu.Lock()
		unused := !h.held && s.waiters[id] == nil
		s.mu.Unlock()
		if unused {
			_ = s.release(ctx, h, 0) // else the janitor deletes the key
		}
	})
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	reply, err := s.get(ctx, s.queueOf(name), clientv3.WithFirstCreate()...)
	if err != nil {
		return s.explain(ctx, err)
	}
	first := readFirst(reply.Kvs)
	if first.revision == 0 || tokenOf(first.revision) != token {
		return driver.ErrNotHeld
	}
	// The first key stays the first for as long as it exists.
	return s.deleteKey(ctx, first.key, first.revision)
}

// deleteKey deletes a key that was created by that revision. It returns ErrNotHeld if there is
// none.
func (s *Store) deleteKey(ctx context.Context, key string, revision int64) error {
	q := query{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		then:       []clientv3.Op{clientv3.OpDelete(key)},
	}
	reply, _, err := tryOnce(ctx, s, q.send)
	switch {
	case err != nil:
		return s.explain(ctx, err)
	case !reply.Succeeded:
		return driver.ErrNotHeld
	}
	return nil
}

// maxOps is below what a server allows in a transaction.
const maxOps = 100

// deleteKeys deletes keys, by whatever revision they were created. After an error some of them
// may still be deleted later.
func (s *Store) deleteKeys(ctx context.Context, keys []string) error {
	for chunk := range slices.Chunk(keys, maxOps) {
		ops := make([]clientv3.Op, len(chunk))
		for i, key := range chunk {
			ops[i] = clientv3.OpDelete(key)
		}
		if _, _, err := tryOnce(ctx, s, query{then: ops}.send); err != nil {
			return s.explain(ctx, err)
		}
	}
	return nil
}
