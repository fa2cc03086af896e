package etcdlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// handle is the key of a grant, by which a store releases what another acquired.
type handle string

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	id := identity{grant.Name, grant.Owner}
	h, err := s.find(ctx, id)
	if err != nil {
		s.background(func() { s.releaseLate(id, grant.Token) })
		return err
	}
	if h == nil {
		return s.releaseForeign(ctx, grant)
	}
	outcome, err := carry(ctx, s, h, func(ctx context.Context) error { return s.release(ctx, h, grant.Token) })
	if err != nil {
		return err
	}
	return outcome
}

// releaseLate releases what an attempt gets that is still under way, for one who did not
// wait for its end: nobody else would.
func (s *Store) releaseLate(id identity, token uint64) {
	s.afterwards(id, func(ctx context.Context, h *hold) {
		_ = s.release(ctx, h, token) // else it expires
	})
}

// afterwards does something for a hold, if there is one, when whoever asks about it has
// left.
func (s *Store) afterwards(id identity, do func(ctx context.Context, h *hold)) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*callLimit) // for what is under way, and then for this
	defer cancel()
	h, err := s.find(ctx, id)
	if h == nil || err != nil {
		return
	}
	defer h.leave()
	do(ctx, h)
}

// releaseForeign releases what another store of the same server acquired, or
// this one and lost: the token belongs to one acquisition only.
func (s *Store) releaseForeign(ctx context.Context, grant driver.Grant) error {
	key, ok := grant.Handle.(handle)
	if !ok || grant.Token == 0 {
		return driver.ErrNotHeld
	}
	existed, err := s.deleteKey(ctx, string(key), int64(grant.Token))
	if err != nil {
		return s.failure(ctx, err)
	}
	if !existed {
		return driver.ErrNotHeld
	}
	return nil
}

// release gives up what the hold has. Without an answer it stays as it is, is not
// renewed any more, and is deleted when its time is over.
func (s *Store) release(ctx context.Context, h *hold, token uint64) error {
	s.mu.Lock()
	key, revision, held := h.key, h.revision, h.held
	bound := h.lease != nil
	var opts []clientv3.OpOption
	if h.doubted && revision != 0 { // what was written late has the same key, and is not what was granted
		opts = append(opts, clientv3.WithPrevKV())
	}
	s.mu.Unlock()
	if token != 0 && held && uint64(revision) != token {
		return driver.ErrNotHeld
	}
	if !bound {
		s.drop(h)
		return driver.ErrNotHeld
	}
	// Nobody else has that key: see doubtKey.
	tries, existed := 0, false
	err := s.try(ctx, func(ctx context.Context, c *conn) error {
		tries++
		reply, err := c.kv.Delete(ctx, key, opts...)
		existed = err == nil && reply.Deleted > 0 && (opts == nil || reply.PrevKvs[0].CreateRevision == revision)
		return err
	})
	if tries > 1 || err != nil && !isCertain(err) {
		s.doubtKey(h, key)
	}
	if err != nil {
		return s.explain(err)
	}
	existed = existed || tries > 1 // what a try deleted that was not answered in time was there
	s.drop(h)
	// A key of an attempt that went unanswered is the lock or a place: nobody
	// has seen which.
	if !existed || !held && revision != 0 {
		return driver.ErrNotHeld
	}
	return nil
}

// doubtKey makes nobody else get the key: what was to delete it, and went unanswered,
// may still do so.
func (s *Store) doubtKey(h *hold, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != nil && h.key == key {
		h.doubted = true
	}
}

// deleteKey deletes a key that was created by that revision.
func (s *Store) deleteKey(ctx context.Context, key string, revision int64) (existed bool, err error) {
	_, err = s.tryOnce(ctx, func(ctx context.Context, c *conn) error {
		reply, err := c.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", revision)).
			Then(clientv3.OpDelete(key)).Commit()
		existed = err == nil && reply.Succeeded
		return err
	})
	return existed, err
}

// giveUpPlace leaves the queue, for one who stopped waiting without Release.
func (s *Store) giveUpPlace(id identity) {
	s.afterwards(id, func(ctx context.Context, h *hold) {
		s.mu.Lock()
		waits := s.waiting[id] != nil // again
		held := h.held
		s.mu.Unlock()
		if !held && !waits {
			_ = s.release(ctx, h, 0) // the steward tries again
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
		return s.failure(ctx, err)
	}
	first := readFirst(reply.Kvs)
	if first.revision == 0 || uint64(first.revision) != token {
		return driver.ErrNotHeld
	}
	// What is the first stays the first for as long as it exists.
	existed, err := s.deleteKey(ctx, first.key, first.revision)
	if err != nil {
		return s.failure(ctx, err)
	}
	if !existed {
		return driver.ErrNotHeld
	}
	return nil
}
