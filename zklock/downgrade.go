package zklock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// Downgrade implements driver.Downgrader. The node of the lock stays. Its companion becomes a
// reader with the same number, as in Curator.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	return s.run(ctx, "downgrading a lock", func(ctx context.Context) error {
		h := s.lockHold(holdID{grant.Name, grant.Owner}, false)
		if h == nil {
			return driver.ErrNotHeld
		}
		defer s.unlockHold(h)
		held := false
		s.withLock(func() { held = s.isHeldLocked(h, grant.Token) })
		switch {
		case !held || h.mode.Limit > 0:
			return driver.ErrNotHeld
		case !s.offersModes():
			return driver.ErrUnsupported
		case h.mode.Shared:
			return nil
		}
		err := s.retry(ctx, func() error { return s.downgrade(h) })
		if isOutdated(err) {
			return driver.ErrNotHeld
		}
		return err
	})
}

// downgrade replaces the companion. ErrNoNode says that the lock is gone. A repetition finds what
// an earlier, unanswered try has done.
func (s *Store) downgrade(h *hold) error {
	writer, reader := "", ""
	s.withLock(func() {
		if len(h.extraNodes) > 0 {
			writer = h.extraNodes[0]
			reader = extraPrefix(h.id, driver.Mode{Shared: true}) + sortKey(writer)
			h.extraNodes = []string{writer, reader} // if the request is unanswered, a release removes both
		}
	})
	if writer == "" {
		return zk.ErrNoNode
	}
	node := s.checkNode(h)
	create := &zk.CreateRequest{Path: h.container + "/" + reader, Acl: s.opts.ACL, Flags: zk.FlagEphemeral}
	_, err := s.transact(node, deletion(h.container, writer), create)
	if errors.Is(err, zk.ErrNoNode) { // the lock or its companion is gone
		_, err = s.transact(node, create)
		err = ignore(err, zk.ErrNodeExists)
	}
	if err != nil {
		return err
	}
	s.withLock(func() { h.extraNodes = []string{reader} })
	h.mode.Shared = true
	return nil
}
