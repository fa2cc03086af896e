package zklock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/go-zookeeper/zk"
)

// Release implements driver.Store. If the outcome is unknown, the store releases what the
// owner has as soon as a server answers.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := s.run(ctx, "releasing a lock", func(ctx context.Context) error { return s.release(ctx, &grant) })
	if unless(err, driver.ErrNotHeld) != nil {
		s.releaseLater(&grant)
	}
	return err
}

// releaseLater makes what the owner has expire now. An attempt under way is not granted.
func (s *Store) releaseLater(grant *driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.acquisitions[acquisitionKey{grant.Name, grant.Owner}]; a != nil && (grant.Token == 0 || grant.Token == a.token) {
		a.released, a.queued, a.lost = true, false, nil
		s.expireNowLocked(a)
	}
}

func (s *Store) release(ctx context.Context, grant *driver.Grant) error {
	a := s.enter(grant.Name, grant.Owner, false)
	if a == nil {
		return driver.ErrNotHeld
	}
	defer s.leave(a)
	s.mu.Lock()
	held := a.granted && !a.expiredLocked() || a.unknown
	if grant.Token != 0 && grant.Token != a.token {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	a.queued, a.lost = false, nil
	s.mu.Unlock()
	existed, tries, err := s.releaseNode(ctx, a)
	switch {
	case err != nil:
		return err
	case held && !existed && tries > 1:
		return errMaybeReleased
	case !held || !existed:
		return driver.ErrNotHeld
	}
	return nil
}

// expireNowLocked makes the store release the acquisition as soon as a server answers.
func (s *Store) expireNowLocked(a *acquisition) {
	a.granted = false
	s.setDeadlineLocked(a, 0)
}

// releaseNode removes the acquisition's node, and tries again when the connection breaks.
// It reports whether the last try found the node.
func (s *Store) releaseNode(ctx context.Context, a *acquisition) (existed bool, tries int, err error) {
	err = s.persist(ctx, func() (err error) {
		tries++
		if a.unknown {
			err = s.resolveCreation(a)
		}
		if err == nil {
			existed, err = s.removeNode(a)
		}
		return err
	})
	return existed, tries, err
}

// removeNode removes the acquisition's node once, and reports whether it existed.
func (s *Store) removeNode(a *acquisition) (existed bool, err error) {
	s.mu.Lock()
	node, id, token, version := a.node, a.id, a.token, a.version
	a.leaving = true // so that its removal is no loss
	s.mu.Unlock()
	if node == "" {
		return false, nil
	}
	err = s.deleteNode(a.container, id, node, token, version)
	existed = err == nil
	if err = unless(err, zk.ErrNoNode); err != nil {
		return false, err
	}
	s.locked(func() { a.node, a.granted = "", false })
	if n, ok := number(node); ok && n >= renumberAt {
		_ = s.conn.Delete(a.container, anyVersion) // which fails while it has nodes
	}
	return existed, nil
}

// deleteNode deletes a node if it is still the one with that ID and token. A name of the order
// Fair is used once. For lock-0, the anchor proves that the container is the same, and its
// version that no other lock-0 was created since: every creation writes to the container.
func (s *Store) deleteNode(container, id, node string, token uint64, version int32) error {
	if node != unfairNode {
		return s.conn.Delete(container+"/"+node, anyVersion)
	}
	err := s.deleteWithAnchor(container, anchorName(id), node, version)
	if !isOutdated(err) {
		return err
	}
	// Other contenders have written to the container, or one of the two nodes is gone.
	err = s.deleteIfToken(container, anchorName("x"+id), node, token)
	if unless(err, zk.ErrNoNode) == nil {
		if err := s.deleteAnchor(container, anchorName(id)); err != nil {
			return err
		}
	}
	return err
}

// deleteWithAnchor deletes an anchor and a node if the container has that version.
func (s *Store) deleteWithAnchor(container, anchor, node string, version int32) error {
	_, err := s.transact(
		&zk.DeleteRequest{Path: container + "/" + anchor, Version: anyVersion},
		&zk.CheckVersionRequest{Path: container, Version: version},
		&zk.DeleteRequest{Path: container + "/" + node, Version: anyVersion})
	return err
}

// deleteIfToken deletes a node if it has that token, otherwise it returns ErrNoNode. A new
// anchor proves that the container is the same between the comparison and the deletion.
func (s *Store) deleteIfToken(container, anchor, node string, token uint64) error {
	for {
		_, err := s.conn.Create(container+"/"+anchor, nil, zk.FlagEphemeral, s.opts.ACL)
		if err = unless(err, zk.ErrNodeExists); err != nil {
			return err
		}
		_, before, err := s.conn.Exists(container)
		if err != nil {
			return err
		}
		exists, stat, err := s.conn.Exists(container + "/" + node)
		if err != nil {
			return err
		}
		if !exists || tokenOf(stat.Czxid) != token {
			if err := s.deleteAnchor(container, anchor); err != nil {
				return err
			}
			return zk.ErrNoNode
		}
		if err := s.deleteWithAnchor(container, anchor, node, before.Version); !isOutdated(err) {
			return err
		}
	}
}

// deleteAnchor deletes an anchor that may exist.
func (s *Store) deleteAnchor(container, anchor string) error {
	return unless(s.conn.Delete(container+"/"+anchor, anyVersion), zk.ErrNoNode)
}

// expire releases an acquisition that has expired. It tries until the store is closed.
func (s *Store) expire(ctx context.Context, a *acquisition) {
	a.op.Lock()
	defer s.leave(a)
	s.mu.Lock()
	expired := a.expiredLocked()
	a.expiring = expired
	if expired {
		a.granted, a.queued = false, false
	} else {
		s.alarm.NoLaterThan(a.deadline) // it was extended meanwhile
	}
	s.mu.Unlock()
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for expired && !a.ended && ctx.Err() == nil {
		if _, _, err := s.releaseNode(ctx, a); err == nil {
			break
		}
		_ = pause.Wait(ctx)
	}
	s.locked(func() { a.expiring = false })
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	return s.run(ctx, "breaking a lock", func(context.Context) error {
		err := s.breakLock(s.containerPath(name), token)
		if errors.Is(err, zk.ErrNoNode) {
			return driver.ErrNotHeld
		}
		return err
	})
}

func (s *Store) breakLock(container string, token uint64) error {
	if err := s.confirmSession(); err != nil {
		return err
	}
	_, before, err := s.conn.Exists(container)
	if err != nil {
		return err
	}
	queue, err := s.queue(container)
	if err != nil {
		return err
	}
	if len(queue) == 0 {
		return zk.ErrNoNode
	}
	head := queue[0]
	data, stat, err := s.conn.Get(container + "/" + head)
	switch {
	case err != nil:
		return err
	case tokenOf(stat.Czxid) != token:
		return zk.ErrNoNode
	case head != unfairNode && !hasID(head): // its number may be used again
		return s.deleteIfToken(container, anchorName(newID()), head, token)
	}
	id := cmp.Or(decode(data).ID, newID()) // without an ID there is no anchor
	return s.deleteNode(container, id, head, token, before.Version)
}
