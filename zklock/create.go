package zklock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// maxContainers limits how many containers without data a store remembers.
const maxContainers = 10_000

// anyVersion makes a write unconditional.
const anyVersion = -1

// prepareContainer creates the container of a lock, or a parent in it, if it is missing. It returns
// a request for the transaction of writeNodes that writes to it and keeps the data of other
// programs. A store that has seen it without data does not read it again, to save a request in
// every attempt: data that are stored there later are overwritten.
func (s *Store) prepareContainer(h *hold, parent string) (*zk.SetDataRequest, error) {
	path, known := pathIn(h.container, parent), false
	s.withLock(func() { _, known = s.withoutData[path] })
	if known {
		return &zk.SetDataRequest{Path: path, Version: anyVersion}, nil
	}
	data, stat, err := s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		err = s.createContainer(path)
	}
	if err != nil {
		s.forgetContainers(h)
		return nil, err
	}
	if len(data) > 0 {
		return &zk.SetDataRequest{Path: path, Data: data, Version: stat.Version}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.withoutData) >= maxContainers {
		clear(s.withoutData)
	}
	s.withoutData[path] = struct{}{}
	return &zk.SetDataRequest{Path: path, Version: anyVersion}, nil
}

// forgetContainers makes the next creation read the hold's container and the parents in it.
func (s *Store) forgetContainers(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, parent := range []string{leasesParent, placesParent, ""} {
		delete(s.withoutData, pathIn(h.container, parent))
	}
}

// createContainer creates a container. The root may have vanished: Curator creates all nodes above
// a lock as containers, which ZooKeeper removes when they have no children.
func (s *Store) createContainer(path string) error {
	_, err := s.conn.CreateContainer(path, nil, zk.FlagContainer, s.opts.ACL)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.ensureRoot(); err != nil {
			return err
		}
		_, err = s.conn.CreateContainer(path, nil, zk.FlagContainer, s.opts.ACL)
	}
	return ignore(err, zk.ErrNodeExists)
}

// create creates the hold's nodes and writes to their parents in one request. All changes of a
// transaction have the same zxid, so the container's mzxid in the answer is the czxid of the nodes.
// Its number of children shows whether there are other contenders.
func (s *Store) create(h *hold, req *driver.Request) (position, error) {
	parents := []string{""}
	if req.Mode.Limit > 0 {
		parents = append(parents, leasesParent)
	}
	var writes []any
	for _, parent := range parents {
		write, err := s.prepareContainer(h, parent)
		if err != nil {
			return position{}, err
		}
		writes = append(writes, write)
	}
	id := newID() // one for each time: the numbers of a container may restart
	s.withLock(func() { h.id = id })
	session, sent := s.sessionID.Load(), s.clock.NoLaterThanNow()
	creations := s.creations(h, req)
	answers, err := s.writeNodes(h, slices.Concat(creations, writes)...)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return position{ahead: []string{unfairNode}, holder: unfairNode}, nil
	case err != nil:
		return position{}, err
	}
	var nodes []string
	for _, answer := range answers[:len(creations)] {
		nodes = append(nodes, h.relative(answer.String))
	}
	container := answers[len(creations)].Stat
	if !s.adopt(h, nodes, session, tokenOf(container.Mzxid), container.Version, sent) {
		h.unconfirmed = true // the session was replaced meanwhile
		return position{}, errCreateAgain
	}
	s.noteConfirmed(session, sent)
	for _, node := range nodes {
		if !hasUniqueNumber(node) {
			return position{}, s.discardNumbers(h)
		}
	}
	switch alone := int(container.NumChildren) == len(nodes); { // a permit's lease node is not in the container, but its parent is
	case alone && h.mode.Limit == 0:
		return position{first: true}, nil
	case alone && int(answers[len(answers)-1].Stat.NumChildren) <= h.mode.Limit:
		return s.admit(h)
	}
	return s.readPosition(h)
}

func (s *Store) creations(h *hold, req *driver.Request) []any {
	c := content{Holder: req.Holder, TTL: req.TTL.Milliseconds()}
	node, extra := fairNodePrefix(h.id, req.Mode), extraPrefix(h.id, req.Mode)
	if s.opts.Order == Unfair {
		c.ID = h.id
		node, extra = unfairNode, anchorName(h.id)
	}
	h.mode, h.data = req.Mode, c.encode()
	creations := []any{s.creation(h, node, h.data)}
	if s.opts.Order == Fair && s.opts.ExclusiveOnly {
		return creations
	}
	var extraData []byte
	if req.Mode.Limit > 0 { // a lease node describes its holder, too
		extraData = h.data
	}
	return append(creations, s.creation(h, extra, extraData))
}

func (s *Store) creation(h *hold, node string, data []byte) *zk.CreateRequest {
	flags := int32(zk.FlagEphemeralSequential)
	if s.opts.Order == Unfair {
		flags = zk.FlagEphemeral
	}
	return &zk.CreateRequest{Path: h.container + "/" + node, Data: data, Acl: s.opts.ACL, Flags: flags}
}

// writeNodes carries out a transaction on the hold's nodes, and sets h.unconfirmed if its outcome
// is unknown: then the next operation finds out what happened.
func (s *Store) writeNodes(h *hold, requests ...any) ([]zk.MultiResponse, error) {
	h.unconfirmed = true
	answers, err := s.transact(requests...)
	h.unconfirmed = !isOutcomeKnown(err)
	if isOutdated(err) {
		s.forgetContainers(h)
	}
	return answers, err
}

// transact carries out all requests or none.
func (s *Store) transact(requests ...any) ([]zk.MultiResponse, error) {
	answered := s.limitAnswer()
	answers, err := s.conn.Multi(requests...)
	answered()
	for i := 0; i < len(answers) && err == nil; i++ {
		err = answers[i].Error
	}
	if err == nil && len(answers) != len(requests) {
		err = fmt.Errorf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers, err
}

// adopt makes nodes the hold's, if the session that created them lives.
func (s *Store) adopt(h *hold, nodes []string, session int64, token uint64, version int32, seen clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == 0 || session != s.sessionID.Load() {
		return false
	}
	h.waited = h.waited && h.node == nodes[0]
	h.node, h.extraNodes, h.session, h.token, h.version, h.seen = nodes[0], nodes[1:], session, token, version, seen
	h.held, h.leaving, h.watchedBy = false, false, 0
	h.position = position{}
	return true
}

// discardNumbers removes the hold's nodes, one of which has a sequence number that is not unique.
func (s *Store) discardNumbers(h *hold) error {
	_, err := s.deleteOwnNodes(h)
	s.restartNumbers(h)
	return cmp.Or(err, ErrNumbersUsedUp)
}

// restartNumbers removes the container and the parents in it, those of them that have no children:
// the numbers of new ones begin at zero.
func (s *Store) restartNumbers(h *hold) {
	for _, parent := range h.parents() {
		_ = s.conn.Delete(pathIn(h.container, parent), anyVersion) // fails if it has children
	}
}

// resolveCreation finds out whether an unanswered request has created nodes. It removes nodes with
// the hold's ID that belong to another session, because they would vanish with it.
func (s *Store) resolveCreation(h *hold) error {
	session, asked := s.sessionID.Load(), s.clock.NoLaterThanNow()
	if err := s.confirmSession(); err != nil {
		return err
	}
	_, container, err := s.conn.Exists(h.container)
	if err != nil {
		return err
	}
	node, extra, err := s.ownNodes(h)
	if err != nil {
		return err
	}
	stat, err := s.ownStat(h, node)
	if err != nil {
		return err
	}
	if stat == nil {
		err = s.deleteIfExists(h.container, extra...)
		h.unconfirmed = err != nil
		return err
	}
	token := tokenOf(stat.Czxid)
	if leaseNode := nodeIn(leasesParent, extra); leaseNode != "" { // its czxid makes the token of a permit
		exists, stat, err := s.conn.Exists(h.container + "/" + leaseNode)
		if err != nil {
			return err
		}
		if exists {
			token = tokenOf(stat.Czxid)
		}
	}
	nodes := slices.Concat([]string{node}, extra)
	if stat.EphemeralOwner != session || !s.adopt(h, nodes, session, token, container.Version, asked) {
		err = ignore(s.deleteNodes(h.container, h.id, nodes, token, container.Version), zk.ErrNoNode)
	}
	h.unconfirmed = err != nil
	return err
}

// ownNodes returns the nodes with the hold's ID. Extra nodes without the first one remain only if
// an operator removed the first.
func (s *Store) ownNodes(h *hold) (node string, extra []string, err error) {
	if s.opts.Order == Unfair {
		return unfairNode, []string{anchorName(h.id)}, nil
	}
	for _, parent := range h.parents() {
		children, _, err := s.conn.Children(pathIn(h.container, parent))
		if ignore(err, zk.ErrNoNode) != nil {
			return "", nil, err
		}
		for _, child := range children {
			switch {
			case !strings.HasPrefix(child, nodePrefix(h.id)):
			case parent == "" && strings.Contains(child, nodeBase):
				node = child
			default:
				extra = append(extra, strings.TrimPrefix(parent+"/"+child, "/"))
			}
		}
	}
	return node, extra, nil
}

// ownStat returns the state of the hold's node, and nil if the node is gone or, with the
// order Unfair, another holder's.
func (s *Store) ownStat(h *hold, node string) (*zk.Stat, error) {
	if node == "" {
		return nil, nil
	}
	data, stat, err := s.conn.Get(h.container + "/" + node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, err
	case node == unfairNode && decode(data).ID != h.id:
		return nil, nil
	}
	return stat, nil
}
