package zklock

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/go-zookeeper/zk"
)

// Release implements driver.Store. If the outcome is unknown, the store releases what the
// owner has as soon as a server answers.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := s.run(ctx, "releasing a lock", func(ctx context.Context) error { return s.release(ctx, &grant) })
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[holdID{grant.Name, grant.Owner}]
	if h != nil && (grant.Token == 0 || grant.Token == h.token) {
		h.released, h.keepPlace, h.lost = true, false, nil // an attempt under way is not granted
		s.expireNowLocked(h)
	}
	return err
}

func (s *Store) release(ctx context.Context, grant *driver.Grant) error {
	h := s.lockHold(holdID{grant.Name, grant.Owner}, false)
	if h == nil {
		return driver.ErrNotHeld
	}
	defer s.unlockHold(h)
	s.mu.Lock()
	held := h.held && !h.expiredLocked() || h.unconfirmed
	if grant.Token != 0 && grant.Token != h.token {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	h.keepPlace, h.lost = false, nil
	s.mu.Unlock()
	existed, tries, err := s.releaseNodes(ctx, h)
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

// releaseNodes deletes the hold's nodes, and tries again when the connection breaks. It reports
// whether the last try found the node.
func (s *Store) releaseNodes(ctx context.Context, h *hold) (existed bool, tries int, err error) {
	err = s.retry(ctx, func() (err error) {
		tries++
		if h.unconfirmed {
			err = s.resolveCreation(h)
		}
		if err == nil {
			existed, err = s.deleteOwnNodes(h)
		}
		return err
	})
	return existed, tries, err
}

// deleteOwnNodes tries once to delete the hold's nodes, and reports whether the first one existed.
func (s *Store) deleteOwnNodes(h *hold) (existed bool, err error) {
	s.mu.Lock()
	node, extra, id, token, version := h.node, h.extraNodes, h.id, h.token, h.version
	h.leaving = true // so that its removal is no loss
	s.mu.Unlock()
	if node == "" {
		return false, nil
	}
	nodes := slices.Concat([]string{node}, extra)
	err = s.deleteNodes(h.container, id, nodes, token, version)
	existed = err == nil
	if err = ignore(err, zk.ErrNoNode); err != nil {
		return false, err
	}
	s.withLock(func() { h.node, h.extraNodes, h.held = "", nil, false })
	if slices.ContainsFunc(nodes, isNearLastNumber) {
		s.restartNumbers(h) // deletes nothing while other nodes exist
	}
	return existed, nil
}

// deleteNodes deletes a contender's nodes if they are still those with that ID and token. ErrNoNode
// says that the first one is not. A name of the order Fair is used once. lock-0 is not: the anchor
// proves that the container is the same, and its version that no other lock-0 was created since,
// because every creation writes to the container.
func (s *Store) deleteNodes(container, id string, nodes []string, token uint64, version int32) error {
	node := nodes[0]
	if node != unfairNode {
		return s.deleteExisting(container, nodes)
	}
	err := s.deleteWithAnchor(container, anchorName(id), node, version)
	if isOutdated(err) { // other contenders have written to the container, or one of the two nodes is gone
		err = s.deleteIfToken(container, anchorName(id), node, token)
	}
	return err
}

func deletion(container, node string) *zk.DeleteRequest {
	return &zk.DeleteRequest{Path: container + "/" + node, Version: anyVersion}
}

// deleteAll deletes all of the nodes, or none and returns ErrNoNode.
func (s *Store) deleteAll(container string, nodes []string) error {
	if len(nodes) == 1 {
		defer s.limitAnswer()()
		return s.conn.Delete(container+"/"+nodes[0], anyVersion)
	}
	var requests []any
	for _, node := range nodes {
		requests = append(requests, deletion(container, node))
	}
	_, err := s.transact(requests...)
	return err
}

// deleteExisting deletes a contender's nodes, in one step unless one of them is gone. ErrNoNode
// says that the first one is gone.
func (s *Store) deleteExisting(container string, nodes []string) error {
	err := s.deleteAll(container, nodes)
	if !errors.Is(err, zk.ErrNoNode) || len(nodes) == 1 {
		return err
	}
	if err := s.deleteIfExists(container, nodes[1:]...); err != nil { // one of them is gone
		return err
	}
	return s.deleteAll(container, nodes[:1])
}

// deleteIfExists deletes nodes that may exist, one after another.
func (s *Store) deleteIfExists(container string, nodes ...string) error {
	for _, node := range nodes {
		if err := ignore(s.conn.Delete(container+"/"+node, anyVersion), zk.ErrNoNode); err != nil {
			return err
		}
	}
	return nil
}

// deleteWithAnchor deletes an anchor and a node if the container has that version.
func (s *Store) deleteWithAnchor(container, anchor, node string, version int32) error {
	_, err := s.transact(
		deletion(container, anchor),
		&zk.CheckVersionRequest{Path: container, Version: version},
		deletion(container, node))
	return err
}

// deleteIfToken deletes a node if it has that token, otherwise it returns ErrNoNode. An anchor, which is
// created if there is none, proves that the container is the same between the comparison and the
// deletion, and is deleted either way.
func (s *Store) deleteIfToken(container, anchor, node string, token uint64) error {
	for {
		_, err := s.conn.Create(container+"/"+anchor, nil, zk.FlagEphemeral, s.opts.ACL)
		if err = ignore(err, zk.ErrNodeExists); err != nil {
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
			return cmp.Or(s.deleteIfExists(container, anchor), zk.ErrNoNode)
		}
		if err := s.deleteWithAnchor(container, anchor, node, before.Version); !isOutdated(err) {
			return err
		}
	}
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	token = tokenstep.First(tokenstep.Number(token))
	return s.run(ctx, "breaking a lock", func(context.Context) error {
		for {
			again, err := s.tryBreak(s.containerPath(name), token)
			switch {
			case again:
			case errors.Is(err, zk.ErrNoNode):
				return driver.ErrNotHeld
			default:
				return err
			}
		}
	})
}

// tryBreak removes the holder with that token, or returns ErrNoNode. again says that a node was
// replaced or removed meanwhile, by a downgrade or a release: the holders have to be read again.
func (s *Store) tryBreak(container string, token uint64) (again bool, err error) {
	if err := s.confirmSession(); err != nil {
		return false, err
	}
	_, before, err := s.conn.Exists(container)
	if err != nil {
		return false, err
	}
	holders, _, err := s.holders(container)
	if err != nil {
		return false, err
	}
	for _, c := range holders {
		data, stat, err := s.conn.Get(container + "/" + c.node)
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return false, err
		case tokenOf(stat.Czxid) != token:
		case c.node != unfairNode && !hasID(path.Base(c.node)): // its name may be used again
			return false, s.deleteIfToken(container, anchorName(newID()), c.node, token)
		case c.node != unfairNode:
			err := s.deleteAll(container, c.nodes())
			return errors.Is(err, zk.ErrNoNode), err
		default:
			id := cmp.Or(decode(data).ID, newID()) // without an ID there is no anchor
			return false, s.deleteNodes(container, id, c.nodes(), token, before.Version)
		}
	}
	return false, zk.ErrNoNode
}
