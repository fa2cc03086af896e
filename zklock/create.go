package zklock

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// maxContainers limits how many empty containers a store remembers.
const maxContainers = 10_000

// anyVersion makes a write unconditional.
const anyVersion = -1

// prepareContainer makes sure that the container of a lock exists. It returns the data to
// write to it with every acquisition, which are those that another program stored there,
// and their version. A store that has seen the container empty does not read it again, to
// save a request in every acquisition: data that are stored there later are overwritten.
func (s *Store) prepareContainer(container string) (data []byte, version int32, err error) {
	known := false
	s.locked(func() { _, known = s.empty[container] })
	if known {
		return nil, anyVersion, nil
	}
	data, stat, err := s.conn.Get(container)
	if errors.Is(err, zk.ErrNoNode) {
		err = s.createContainer(container)
	}
	if err != nil {
		return nil, 0, err
	}
	if len(data) > 0 {
		return data, stat.Version, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.empty) >= maxContainers {
		clear(s.empty)
	}
	s.empty[container] = struct{}{}
	return nil, anyVersion, nil
}

// createContainer creates the container of a lock. The root may have vanished: Curator
// creates all nodes above a lock as containers, which ZooKeeper removes when they are empty.
func (s *Store) createContainer(container string) error {
	_, err := s.conn.CreateContainer(container, nil, zk.FlagContainer, s.opts.ACL)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.ensureRoot(); err != nil {
			return err
		}
		_, err = s.conn.CreateContainer(container, nil, zk.FlagContainer, s.opts.ACL)
	}
	return unless(err, zk.ErrNodeExists)
}

// create creates the acquisition's node and writes to the container in one request. The
// answer to the write contains the zxid, which is the node's czxid, and the number of
// children, which tells whether there are other contenders.
func (s *Store) create(a *acquisition, req *driver.Request) (position, error) {
	data, version, err := s.prepareContainer(a.container)
	if err != nil {
		return position{}, err
	}
	id := newID() // one for each node: the numbers of a container may begin again
	s.locked(func() { a.id = id })
	requests := s.creations(a.container, id, req)
	nodes := len(requests)
	requests = append(requests, &zk.SetDataRequest{Path: a.container, Data: data, Version: version})
	session, sent := s.session.Load(), s.clock.NoLaterThanNow()
	a.unknown = true
	answers, err := s.transact(requests...)
	a.unknown = isUnknown(err)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return position{ahead: []string{unfairNode}, head: unfairNode}, nil
	case err != nil:
		if isOutdated(err) {
			s.locked(func() { delete(s.empty, a.container) })
		}
		return position{}, err
	}
	node, container := path.Base(answers[0].String), answers[nodes].Stat
	if !s.adopt(a, node, session, tokenOf(container.Mzxid), container.Version, sent) {
		a.unknown = true // the session was replaced meanwhile
		return position{}, errVanished
	}
	s.noteConfirmed(session, sent)
	if !hasUniqueNumber(node) {
		return position{}, s.discardNumber(a)
	}
	if container.NumChildren == int32(nodes) {
		return position{first: true}, nil
	}
	return s.readPosition(a)
}

// creations returns the requests that create an acquisition's node and, with the order Unfair,
// its anchor.
func (s *Store) creations(container, id string, req *driver.Request) []any {
	create := func(name string, flags int32, data []byte) any {
		return &zk.CreateRequest{Path: container + "/" + name, Data: data, Acl: s.opts.ACL, Flags: flags}
	}
	about := content{Holder: req.Holder, TTL: req.TTL.Milliseconds()}
	if s.opts.Order == Fair {
		return []any{create(fairNodePrefix(id), zk.FlagEphemeralSequential, about.encode())}
	}
	about.ID = id
	return []any{create(unfairNode, zk.FlagEphemeral, about.encode()), create(anchorName(id), zk.FlagEphemeral, nil)}
}

// transact carries out all requests or none.
func (s *Store) transact(requests ...any) ([]zk.MultiResponse, error) {
	answers, err := s.conn.Multi(requests...)
	for i := 0; i < len(answers) && err == nil; i++ {
		err = answers[i].Error
	}
	if err == nil && len(answers) != len(requests) {
		err = fmt.Errorf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers, err
}

// adopt makes node the acquisition's, if the session that created it lives.
func (s *Store) adopt(a *acquisition, node string, session int64, token uint64, version int32, seen clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == 0 || session != s.session.Load() {
		return false
	}
	a.node, a.session, a.token, a.version, a.seen = node, session, token, version, seen
	a.granted, a.leaving, a.guarded = false, false, 0
	a.at = position{}
	return true
}

// discardNumber removes a node whose number does not tell its place. A new container, which
// is possible when this one is empty, begins to count again.
func (s *Store) discardNumber(a *acquisition) error {
	if _, err := s.removeNode(a); err != nil {
		return err
	}
	if err := s.conn.Delete(a.container, anyVersion); err == nil {
		return errVanished // which makes the caller create another node
	}
	return ErrNumbersUsedUp
}

// resolveCreation finds out whether a node was created although the answer was lost. A node
// with the acquisition's ID in another session is removed: it would end with that session.
func (s *Store) resolveCreation(a *acquisition) error {
	session, asked := s.session.Load(), s.clock.NoLaterThanNow()
	if err := s.confirmSession(); err != nil {
		return err
	}
	_, container, err := s.conn.Exists(a.container)
	if err != nil {
		return err
	}
	queue, err := s.queue(a.container)
	if err != nil {
		return err
	}
	found := false
	for _, node := range queue {
		stat, err := s.ownNode(a, node)
		switch {
		case err != nil:
			return err
		case stat == nil:
			continue
		case stat.EphemeralOwner == session && s.adopt(a, node, session, tokenOf(stat.Czxid), container.Version, asked):
			found = true
		default:
			err := s.deleteNode(a.container, a.id, node, tokenOf(stat.Czxid), container.Version)
			if unless(err, zk.ErrNoNode) != nil {
				return err
			}
		}
	}
	if s.opts.Order == Unfair && !found {
		if err := s.deleteAnchor(a.container, anchorName(a.id)); err != nil {
			return err
		}
	}
	a.unknown = false
	return nil
}

// ownNode returns the state of a node with the acquisition's ID, which is in its name or in
// its data, and nil for any other node.
func (s *Store) ownNode(a *acquisition, node string) (*zk.Stat, error) {
	if node != unfairNode && !strings.HasPrefix(node, fairNodePrefix(a.id)) {
		return nil, nil
	}
	data, stat, err := s.conn.Get(a.container + "/" + node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, err
	case node == unfairNode && decode(data).ID != a.id:
		return nil, nil
	}
	return stat, nil
}
