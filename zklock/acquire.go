package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// errVanished says that a node is not there, though its session lives: somebody has
// removed it.
var errVanished = errors.New("the node was removed")

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return call(ctx, s, func(ctx context.Context) (driver.Grant, error) { return s.acquire(ctx, &req) })
}

func (s *Store) acquire(ctx context.Context, req *driver.Request) (driver.Grant, error) {
	c := s.enter(claimKey{req.Name, req.Owner}, true)
	defer s.leave(c)
	if ctx.Err() != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	c.queued, c.released = req.Queue, false
	c.lost = req.Lost
	if !c.granted {
		s.lastsLocked(c, req.TTL)
	}
	s.mu.Unlock()
	at, err := s.stand(ctx, c, req)
	if err != nil {
		return driver.Grant{}, explain("acquiring a lock", err)
	}
	s.asked(c)
	if at.first {
		return s.grant(c, req, at)
	}
	return driver.Grant{}, s.refuse(ctx, c, at)
}

// grant makes the claim the holder, if its session lives.
func (s *Store) grant(c *claim, req *driver.Request, at position) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.node == "" || c.session != s.live:
		return driver.Grant{}, fmt.Errorf("%w: the session ended", driver.ErrUnreachable)
	case c.released:
		return driver.Grant{}, fmt.Errorf("%w: the lock was released before it was granted", driver.ErrUnreachable)
	}
	if !c.granted || c.asked < req.TTL { // asking again never shortens
		c.asked = req.TTL
	}
	c.granted, c.queued, c.leaving = true, false, false
	c.lost = req.Lost // also if an earlier node of the owner was lost meanwhile
	c.at = position{}
	s.lastsLocked(c, c.asked)
	return driver.Grant{Name: c.name, Owner: c.owner, Token: c.token, TTL: s.promise(req.TTL, at.age)}, nil
}

// refuse says who has the lock, and gives up the node if the claim does not wait.
func (s *Store) refuse(ctx context.Context, c *claim, at position) error {
	removed := make(chan error, 1)
	if s.keeps(c) {
		removed <- nil
	} else {
		go func() { _, err := s.give(ctx, c); removed <- err }()
	}
	held := s.holderAt(c, at)
	if err := <-removed; err != nil {
		s.giveLater(c)
		return explain("leaving the queue", err)
	}
	return &held
}

// holderAt says who has the lock, as far as that can be told.
func (s *Store) holderAt(c *claim, at position) driver.HeldError {
	if c.blocked == at.head && at.head != single { // whose name is used once
		return c.blocker
	}
	held := driver.HeldError{Name: c.name}
	data, stat, err := s.read(c, at)
	if err == nil {
		about := decode(data)
		held.Token, held.Holder, held.Remaining = uint64(stat.Czxid), about.Holder, about.ttl()
		c.blocked, c.blocker = at.head, held
	}
	return held
}

// read reads the node of the one who has the lock. Who is going to wait for it has it
// watched in the same step.
func (s *Store) read(c *claim, at position) (data []byte, stat *zk.Stat, err error) {
	node := c.parent + "/" + at.head
	if s.keeps(c) && slices.Contains(at.ahead, at.head) {
		if data, stat, err = s.watchNode(c, node); stat != nil || err != nil {
			return data, stat, err
		}
	}
	return s.conn.Get(node)
}

// stand makes sure that the claim has a node, says where it is, and watches the one
// before if somebody waits. It tries again when the connection breaks.
func (s *Store) stand(ctx context.Context, c *claim, req *driver.Request) (at position, err error) {
	err = s.persist(ctx, func() (err error) {
		for {
			at, err = s.place(c, req)
			if err == nil && !at.first && s.watched(c) {
				err = s.watchAhead(c, at)
			}
			if !again(err) || ctx.Err() != nil {
				return err
			}
		}
	})
	return at, err
}

// again says whether an answer was about something that has changed meanwhile.
func again(err error) bool {
	return errors.Is(err, errVanished) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)
}

// place finds or creates the claim's node.
func (s *Store) place(c *claim, req *driver.Request) (position, error) {
	if c.doubt {
		if err := s.resolve(c); err != nil {
			return position{}, err
		}
	}
	if s.hasNode(c) {
		if at, ok := s.told(c); ok {
			return at, nil
		}
		return s.look(c)
	}
	return s.create(c, req)
}

func (s *Store) hasNode(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.node != ""
}

// create creates the claim's node. Writing to the container in the same step tells
// the node's czxid, which is when that was written, and whether others are there.
func (s *Store) create(c *claim, req *driver.Request) (position, error) {
	data, version, err := s.parents.prepare(s, c.parent)
	if err != nil {
		return position{}, err
	}
	id := newID() // one for each node: the numbers of a container may begin again
	s.mu.Lock()
	c.id = id
	s.mu.Unlock()
	about := content{Holder: req.Holder, TTL: req.TTL.Milliseconds()}
	nodes := []*zk.CreateRequest{{Path: prefixOf(id), Flags: zk.FlagEphemeralSequential}}
	if s.order == Unfair {
		about.ID = id
		nodes = []*zk.CreateRequest{{Path: single, Flags: zk.FlagEphemeral}, {Path: anchorOf(id), Flags: zk.FlagEphemeral}}
	}
	nodes[0].Data = about.encode()
	live, sent := s.liveSession(), s.clock.NoLaterThanNow()
	c.doubt = true
	created, parent, err := s.createIn(c.parent, data, version, nodes)
	c.doubt = inDoubt(err)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return position{ahead: []string{single}, head: single}, nil
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		s.parents.forget(c.parent)
		return position{}, err
	case err != nil:
		return position{}, err
	}
	if !s.own(c, path.Base(created), live, uint64(parent.Mzxid), parent.Version, sent) {
		c.doubt = true // it was created in another session than it seemed
		return position{}, errVanished
	}
	s.vouch(live, sent)
	if !orderly(path.Base(created)) {
		return position{}, s.usedUp(c)
	}
	if parent.NumChildren == int32(len(nodes)) {
		return position{first: true}, nil
	}
	return s.lookHere(c)
}

// createIn creates nodes in a container, and returns the path of the first and what the
// container is then.
func (s *Store) createIn(parent string, data []byte, version int32, nodes []*zk.CreateRequest) (string, *zk.Stat, error) {
	var requests []any
	for _, node := range nodes {
		node.Path, node.Acl = parent+"/"+node.Path, s.acl
		requests = append(requests, node)
	}
	requests = append(requests, &zk.SetDataRequest{Path: parent, Data: data, Version: version})
	answers, err := s.conn.Multi(requests...)
	if err := firstError(answers, err); err != nil {
		return "", nil, err
	}
	last := len(requests) - 1
	if len(answers) != len(requests) || answers[last].Stat == nil {
		return "", nil, fmt.Errorf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers[0].String, answers[last].Stat, nil
}

// firstError is why several operations, of which all or none happen, did not.
func firstError(answers []zk.MultiResponse, err error) error {
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.Error != nil {
			return answer.Error
		}
	}
	return nil
}

// own makes a node the claim's, which was there after that instant, if the session it
// was created in lives.
func (s *Store) own(c *claim, node string, session int64, token uint64, version int32, seen clock.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == 0 || session != s.live {
		return false
	}
	c.node, c.session, c.token, c.version, c.seen = node, session, token, version, seen
	c.granted, c.leaving, c.guarded = false, false, 0
	c.at = position{}
	return true
}

// usedUp gives back a node whose number says nothing about its place. The numbers begin again
// with a new container, once this one is empty.
func (s *Store) usedUp(c *claim) error {
	if _, err := s.remove(c); err != nil {
		return err
	}
	if err := s.conn.Delete(c.parent, -1); err == nil {
		return errVanished // and begin again
	}
	return ErrNumbersUsedUp
}

// look finds the claim's node in the queue. That it is the first there says nothing
// if the server that we are connected to has lost the leader; that the leader knows
// our session does. That it is not may be old news, and is looked at again when the
// server has heard from the leader.
func (s *Store) look(c *claim) (position, error) {
	confirmed := make(chan error, 1)
	go func() { confirmed <- s.confirm() }()
	at, err := s.lookHere(c)
	if err := <-confirmed; err != nil {
		return position{}, err
	}
	if err == nil && at.first {
		return at, nil
	}
	return s.lookHere(c)
}

// lookHere looks at what the server knows, which is at least what we wrote.
func (s *Store) lookHere(c *claim) (position, error) {
	asked := s.clock.NoLaterThanNow()
	queue, err := s.queue(c.parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // without a container there is no node either
		return position{}, err
	}
	if s.order == Unfair {
		// Others use the same name. A node that is ours after the queue was listed was
		// ours when it was listed.
		switch ours, err := s.isOurs(c); {
		case err != nil:
			return position{}, err
		case !ours:
			queue = nil
		}
	}
	return s.find(c, queue, asked)
}

// isOurs reports whether the node lock-0 is the one that the claim has created.
func (s *Store) isOurs(c *claim) (bool, error) {
	there, stat, err := s.conn.Exists(c.parent + "/" + single)
	s.mu.Lock()
	defer s.mu.Unlock()
	return there && uint64(stat.Czxid) == c.token, err
}

// find looks for the claim's node in the queue, as it was after that instant. A node of the order Unfair comes
// before all others, but only the one that found no others has the lock.
func (s *Store) find(c *claim, queue []string, asked clock.Instant) (position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(queue, c.node)
	if i < 0 {
		s.vanishedLocked(c)
		return position{}, errVanished
	}
	c.seen = asked
	switch {
	case s.order == Unfair && !c.granted && len(queue) > 1:
		return position{ahead: queue[1:2], head: queue[1]}, nil
	case i == 0 || c.granted:
		return position{first: true}, nil
	}
	c.at = positionOf(queue, i)
	return c.at.clone(), nil
}

// queue lists the nodes of a lock in order.
func (s *Store) queue(parent string) ([]string, error) {
	children, _, err := s.conn.Children(parent)
	if err != nil {
		return nil, err
	}
	return queueOf(children), nil
}

// confirm asks the leader whether our session lives.
func (s *Store) confirm() error {
	live, sent := s.liveSession(), s.clock.NoLaterThanNow()
	_, err := s.conn.Sync(s.rootPath())
	if err == nil {
		s.vouch(live, sent)
	}
	return err
}

// resolve finds out whether a node was created whose answer got lost. A node with
// our ID that another session of ours left is not ours: it would go with that one.
func (s *Store) resolve(c *claim) error {
	live, asked := s.liveSession(), s.clock.NoLaterThanNow()
	if err := s.confirm(); err != nil {
		return err
	}
	_, parent, err := s.conn.Exists(c.parent)
	if err != nil {
		return err
	}
	queue, err := s.queue(c.parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	found := false
	for _, node := range queue {
		stat, mine, err := s.isMine(c, node)
		switch {
		case err != nil:
			return err
		case !mine:
			continue
		case stat.EphemeralOwner == live && s.own(c, node, live, uint64(stat.Czxid), parent.Version, asked):
			found = true
		default:
			if err := s.removeNode(c.parent, c.id, node, uint64(stat.Czxid), parent.Version); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	}
	if s.order == Unfair && !found {
		if err := s.removeAnchor(c.parent, anchorOf(c.id)); err != nil {
			return err
		}
	}
	c.doubt = false
	return nil
}

// isMine says whether a node has the claim's ID, which is in its name or its data.
func (s *Store) isMine(c *claim, node string) (stat *zk.Stat, mine bool, err error) {
	if node != single && !strings.HasPrefix(node, prefixOf(c.id)) {
		return nil, false, nil
	}
	data, stat, err := s.conn.Get(c.parent + "/" + node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return stat, node != single || decode(data).ID == c.id, nil
}

// call is Store.do with a result.
func call[T any](ctx context.Context, s *Store, f func(ctx context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	err := s.do(ctx, func(ctx context.Context) error {
		t, err := f(ctx)
		result <- t
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-result, nil
}
