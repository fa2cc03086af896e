package zklock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/go-zookeeper/zk"
)

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var begun atomic.Bool
	err := s.do(ctx, func(ctx context.Context) error {
		begun.Store(true)
		return s.release(ctx, &grant)
	})
	if err != nil && !begun.Load() {
		s.releaseLater(&grant)
	}
	return err
}

// releaseLater gives up what the owner has as soon as there is a connection. An
// acquisition that is still under way is not granted any more.
func (s *Store) releaseLater(grant *driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimKey{grant.Name, grant.Owner}]
	if c == nil || grant.Token != 0 && grant.Token != c.token {
		return
	}
	c.released, c.granted, c.queued, c.lost = true, false, false, nil
	s.lastsLocked(c, 0)
}

func (s *Store) release(ctx context.Context, grant *driver.Grant) error {
	c := s.enter(claimKey{grant.Name, grant.Owner}, false)
	if c == nil {
		return driver.ErrNotHeld
	}
	defer s.leave(c)
	s.mu.Lock()
	held := c.granted && !c.overLocked() || c.doubt
	if grant.Token != 0 && grant.Token != c.token {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	c.queued, c.lost = false, nil
	s.mu.Unlock()
	lost, err := s.give(ctx, c)
	switch {
	case err != nil:
		s.giveLater(c)
		return explain("releasing a lock", err)
	case !held || lost:
		return driver.ErrNotHeld
	}
	return nil
}

// giveLater makes the claim expire now, so that it is given up as soon as a server
// answers.
func (s *Store) giveLater(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.granted = false
	s.lastsLocked(c, 0)
}

// give removes the claim's node, and tries again when the connection breaks. It says
// whether there was none to remove.
func (s *Store) give(ctx context.Context, c *claim) (lost bool, err error) {
	tries := 0
	err = s.persist(ctx, func() (err error) {
		tries++
		if c.doubt {
			err = s.resolve(c)
		}
		if err == nil {
			lost, err = s.remove(c)
		}
		return err
	})
	return lost && tries == 1, err // what an earlier try removed was there
}

// remove removes the claim's node, if it has one, and says whether there was none.
func (s *Store) remove(c *claim) (lost bool, err error) {
	s.mu.Lock()
	node, id, token, version := c.node, c.id, c.token, c.version
	c.leaving = true // so that its removal is no loss
	s.mu.Unlock()
	if node == "" {
		return true, nil
	}
	err = s.removeNode(c.parent, id, node, token, version)
	if lost = errors.Is(err, zk.ErrNoNode); err != nil && !lost {
		return false, err
	}
	s.mu.Lock()
	c.node, c.granted = "", false
	s.mu.Unlock()
	if n, ok := number(node); ok && n >= renumberAt {
		_ = s.conn.Delete(c.parent, anyVersion) // only if nobody is there
	}
	return lost, nil
}

// removeNode removes a node if it is still the one with that ID and token. The names of
// the order Fair are used once. The one name of the order Unfair is not. But as long as
// its anchor exists the container is the same, and the creator of lock-0 writes to the
// container: if the version is that of our own creation, so is the node.
func (s *Store) removeNode(parent, id, node string, token uint64, version int32) error {
	if node != single {
		return s.conn.Delete(parent+"/"+node, anyVersion)
	}
	err := s.removeBoth(parent, anchorOf(id), node, version)
	if !again(err) {
		return err
	}
	// Others have written to the container, or one of the two nodes is gone.
	err = s.removeFound(parent, anchorOf("x"+id), node, token)
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		if err := s.removeAnchor(parent, anchorOf(id)); err != nil {
			return err
		}
	}
	return err
}

// removeBoth removes an anchor and a node if the container has that version.
func (s *Store) removeBoth(parent, anchor, node string, version int32) error {
	answers, err := s.conn.Multi(
		&zk.DeleteRequest{Path: parent + "/" + anchor, Version: anyVersion},
		&zk.CheckVersionRequest{Path: parent, Version: version},
		&zk.DeleteRequest{Path: parent + "/" + node, Version: anyVersion})
	return firstError(answers, err)
}

// removeFound looks whether a node is still the one with that token, and removes it then.
// An anchor with a name of its own makes sure that the container is the same in between.
func (s *Store) removeFound(parent, anchor, node string, token uint64) error {
	for {
		_, err := s.conn.Create(parent+"/"+anchor, nil, zk.FlagEphemeral, s.acl)
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		_, container, err := s.conn.Exists(parent)
		if err != nil {
			return err
		}
		there, stat, err := s.conn.Exists(parent + "/" + node)
		if err != nil {
			return err
		}
		if !there || uint64(stat.Czxid) != token {
			if err := s.removeAnchor(parent, anchor); err != nil {
				return err
			}
			return zk.ErrNoNode
		}
		if err := s.removeBoth(parent, anchor, node, container.Version); !again(err) {
			return err
		}
	}
}

// removeAnchor removes an anchor that may be there.
func (s *Store) removeAnchor(parent, anchor string) error {
	if err := s.conn.Delete(parent+"/"+anchor, anyVersion); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

// expire gives up a claim whose time is over, however long that takes.
func (s *Store) expire(ctx context.Context, c *claim) {
	c.op.Lock()
	defer s.leave(c)
	s.mu.Lock()
	over := c.overLocked()
	if over {
		c.granted, c.queued = false, false
	} else {
		s.lastsLocked(c, time.Until(c.deadline))
	}
	s.mu.Unlock()
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for over && !c.gone && ctx.Err() == nil {
		if _, err := s.give(ctx, c); err == nil {
			return
		}
		select {
		case <-time.After(pause.Next()):
		case <-ctx.Done():
		}
	}
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	return s.do(ctx, func(context.Context) error {
		err := s.breakLock(s.parentOf(name), token)
		if errors.Is(err, zk.ErrNoNode) {
			return driver.ErrNotHeld
		}
		return explain("breaking a lock", err)
	})
}

func (s *Store) breakLock(parent string, token uint64) error {
	if err := s.confirm(); err != nil {
		return err
	}
	_, container, err := s.conn.Exists(parent)
	if err != nil {
		return err
	}
	queue, err := s.queue(parent)
	if err != nil {
		return err
	}
	if len(queue) == 0 {
		return zk.ErrNoNode
	}
	head := queue[0]
	data, stat, err := s.conn.Get(parent + "/" + head)
	switch {
	case err != nil:
		return err
	case uint64(stat.Czxid) != token:
		return zk.ErrNoNode
	case head != single && !protected(head): // its number may come again
		return s.removeFound(parent, anchorOf(newID()), head, token)
	}
	id := decode(data).ID
	if id == "" {
		id = newID() // there is no anchor
	}
	return s.removeNode(parent, id, head, token, container.Version)
}
