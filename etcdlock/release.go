package etcdlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// handle is the Handle of a grant: its key, by which another store can release the lock.
type handle string

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.ensureConnected(ctx); err != nil {
		return err
	}
	id := holdID{grant.Name, grant.Owner}
	h, err := s.lockHold(ctx, id, false)
	if err != nil { // an attempt is under way: what it gets has to be released
		s.mu.Lock()
		defer s.mu.Unlock()
		s.whenIdleLocked(id, func(ctx context.Context, h *hold) { _ = s.release(ctx, h, grant.Token) }) // else it expires
		return err
	}
	if h == nil { // another store acquired the lock, or this one and lost it
		key, ok := grant.Handle.(handle)
		if !ok || grant.Token == 0 {
			return driver.ErrNotHeld
		}
		return s.deleteKey(ctx, string(key), int64(tokenstep.Number(grant.Token)))
	}
	return s.detached(ctx, h, func(ctx context.Context) outcome { return outcome{err: s.release(ctx, h, grant.Token)} }).err
}

// whenIdleLocked calls do for a hold, in the background as soon as no call uses the hold.
func (s *Store) whenIdleLocked(id holdID, do func(ctx context.Context, h *hold)) {
	s.backgroundLocked(func() {
		ctx, cancel := context.WithTimeout(s.ctx, 2*callLimit) // for the call under way, and then for do
		defer cancel()
		if h, err := s.lockHold(ctx, id, false); h != nil && err == nil {
			defer h.busy.unlock()
			do(ctx, h)
		}
	})
}

// release gives up what the hold has. Without an answer the hold stays as it is: it is not
// renewed any more, and deleted when it expires.
func (s *Store) release(ctx context.Context, h *hold, token uint64) error {
	s.mu.Lock()
	was := *h
	if was.lease == nil {
		s.dropLocked(h)
	}
	s.mu.Unlock()
	if was.lease == nil || token != 0 && was.held && tokenOf(was.revision) != token {
		return driver.ErrNotHeld
	}
	var opts []clientv3.OpOption
	if was.unconfirmed && was.revision != 0 {
		// A late write may have created the key again: only the revision of the grant counts.
		opts = append(opts, clientv3.WithPrevKV())
	}
	// No other hold has that key: see newKeyLocked.
	reply, tries, err := retry(ctx, s, func(ctx context.Context, c *conn) (*clientv3.DeleteResponse, error) {
		return c.kv.Delete(ctx, was.key, opts...)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if tries > 1 || err != nil && rejectionOf(err) == nil {
		// An unanswered deletion may still be carried out: the key must not be used again.
		h.unconfirmed = h.unconfirmed || h.lease != nil && h.key == was.key
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	s.dropLocked(h)
	switch {
	case !was.held && was.revision != 0: // only a place; with revision 0 a key that was deleted counts as the lock
		return driver.ErrNotHeld
	case reply.Deleted > 0 && (opts == nil || reply.PrevKvs[0].CreateRevision == was.revision):
		return nil
	case tries > 1:
		return errMaybeReleased
	}
	return driver.ErrNotHeld
}

// leaveQueue gives up the place of a waiter that stopped waiting without Release.
func (s *Store) leaveQueue(ctx context.Context, h *hold) {
	s.mu.Lock()
	unused := !h.held && s.waiters[h.holdID] == nil
	s.mu.Unlock()
	if unused {
		_ = s.release(ctx, h, 0) // else the janitor deletes the key
	}
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.ensureConnected(ctx); err != nil {
		return err
	}
	prefix, revision := s.queuePrefix(name), int64(tokenstep.Number(token))
	reply, err := s.get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(revision))
	if err != nil {
		return s.explain(ctx, err)
	}
	for _, kv := range holders(prefix, reply.Kvs) {
		if kv.CreateRevision == revision { // it has the lock for as long as it exists
			return s.deleteKey(ctx, string(kv.Key), revision)
		}
	}
	return driver.ErrNotHeld
}

// deleteKey deletes a key that was created by that revision. It returns ErrNotHeld if there is
// none.
func (s *Store) deleteKey(ctx context.Context, key string, revision int64) error {
	t := txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		then:       []clientv3.Op{clientv3.OpDelete(key)},
	}
	reply, tries, err := retry(ctx, s, t.send)
	switch {
	case err != nil:
		return s.explain(ctx, err)
	case !reply.Succeeded && tries > 1:
		return errMaybeReleased
	case !reply.Succeeded:
		return driver.ErrNotHeld
	}
	return nil
}

// errRepeated: a try that was not answered may still be carried out.
var errRepeated = errors.New("it took more than one try")

// deleteKeys deletes keys, whichever revision created them. After an error some of them may still
// be deleted later.
func (s *Store) deleteKeys(ctx context.Context, keys []string) error {
	_, err := inTxns(s, keys, func(part []string) error {
		ops := make([]clientv3.Op, len(part))
		for i, key := range part {
			ops[i] = clientv3.OpDelete(key)
		}
		_, tries, err := retry(ctx, s, txn{then: ops}.send)
		if err == nil && tries > 1 {
			err = errRepeated
		}
		return err
	})
	return err
}
