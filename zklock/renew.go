package zklock

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// Renew implements driver.Store. The session is what is renewed, for all grants at
// once. That a node was removed by somebody else is noticed by a watch, which the
// first renewal of a grant sets. The first one on another connection looks again: the
// client sets its watches anew, and a server that is asked late does not tell that a node
// with the same name has taken the place of another.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	errs, err := call(ctx, s, func(ctx context.Context) ([]error, error) { return s.renew(ctx, grants) })
	if err != nil {
		errs = make([]error, len(grants))
		for i := range errs {
			errs[i] = explain("renewing locks", err)
		}
	}
	return errs
}

func (s *Store) renew(ctx context.Context, grants []driver.Grant) ([]error, error) {
	held := s.heldOf(grants)
	errs := make([]error, len(grants))
	if len(held) > 0 {
		if err := s.persist(ctx, func() error { return s.confirmAll(held, errs) }); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := false
	for i := range grants {
		c := held[i]
		switch {
		case c == nil || !s.isHeldLocked(c, grants[i].Token):
			errs[i] = driver.ErrNotHeld
		case errs[i] == nil:
			s.lastsLocked(c, c.asked)
		}
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil, nil
	}
	return errs, nil
}

// confirmAll asks the leader for the session, and the server for nodes that are not
// watched yet, both on the same connection.
func (s *Store) confirmAll(held map[int]*claim, errs []error) error {
	for {
		before := s.currentConnection()
		guarded := make(chan struct{})
		go func() { s.guardAll(held, errs); close(guarded) }()
		err := s.confirm()
		<-guarded
		if err != nil || s.currentConnection() == before {
			return err
		}
	}
}

func (s *Store) currentConnection() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection
}

// heldOf are the claims of the grants that are held, by their index.
func (s *Store) heldOf(grants []driver.Grant) map[int]*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[int]*claim)
	for i := range grants {
		g := &grants[i]
		if c := s.claims[claimKey{g.Name, g.Owner}]; c != nil && s.isHeldLocked(c, g.Token) {
			held[i] = c
		}
	}
	return held
}

func (s *Store) isHeldLocked(c *claim, token uint64) bool {
	return c.granted && !c.leaving && c.node != "" && c.session == s.live && c.token == token && !c.overLocked()
}

// together limits the calls that one renewal or list makes at a time.
const together = 64

// guardAll makes sure that each node is there and that its removal is noticed.
func (s *Store) guardAll(held map[int]*claim, errs []error) {
	var all sync.WaitGroup
	places := make(chan struct{}, together)
	for i, c := range held {
		s.mu.Lock()
		guarded, path, token := c.guarded == s.connection, c.path(), c.token
		s.mu.Unlock()
		if guarded {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			errs[i] = explain("renewing a lock", s.guard(c, path, token))
		})
	}
	all.Wait()
}

// guard watches the node of a holder.
func (s *Store) guard(c *claim, path string, token uint64) error {
	s.mu.Lock()
	n, connection := s.watchedNodeLocked(path), s.connection
	s.mu.Unlock()
	_, stat, _, err := s.conn.GetW(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.forgetUnusedLocked(path)
	mine := c.node != "" && c.path() == path && c.token == token
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && uint64(stat.Czxid) != token:
		if mine && !c.leaving {
			s.vanishedLocked(c)
		}
		return nil // whoever asks finds out
	case err != nil:
		return err
	}
	if mine && s.watches[path] == n { // otherwise something has happened to it already
		n.owner, c.guarded = c, connection
	}
	return nil
}
