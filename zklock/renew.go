package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// Renew implements driver.Store. One request renews the session, and with it all grants.
//
// The first renewal of a grant, and the first on another connection, also reads and watches
// its node. The client restores its watches, but a server that gets them late does not
// report that a node was replaced by another with the same name.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	errs, err := call(ctx, s, "renewing locks", func(ctx context.Context) ([]error, error) { return s.renew(ctx, grants) })
	if err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	return errs
}

func (s *Store) renew(ctx context.Context, grants []driver.Grant) ([]error, error) {
	held, found := s.heldOf(grants)
	errs := make([]error, len(grants))
	if found {
		if err := s.persist(ctx, func() error { return s.confirmAll(held, errs) }); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range held {
		switch {
		case a == nil || !s.isHeldLocked(a, grants[i].Token):
			errs[i] = driver.ErrNotHeld
		case errs[i] == nil:
			s.setDeadlineLocked(a, a.ttl)
		}
	}
	if errors.Join(errs...) == nil {
		return nil, nil
	}
	return errs, nil
}

// heldOf returns the acquisitions of the grants that are held, nil for the others, and
// whether there are any.
func (s *Store) heldOf(grants []driver.Grant) (held []*acquisition, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held = make([]*acquisition, len(grants))
	for i := range grants {
		g := &grants[i]
		if a := s.acquisitions[acquisitionKey{g.Name, g.Owner}]; a != nil && s.isHeldLocked(a, g.Token) {
			held[i], found = a, true
		}
	}
	return held, found
}

func (s *Store) isHeldLocked(a *acquisition, token uint64) bool {
	return a.granted && !a.leaving && a.node != "" && a.session == s.session.Load() && a.token == token && !a.expiredLocked()
}

// confirmAll asks the leader for the session, and the server for nodes that are not
// watched yet, both on the same connection.
func (s *Store) confirmAll(held []*acquisition, errs []error) error {
	for {
		before := s.connections.Load()
		guarded := make(chan struct{})
		go func() { s.guardAll(held, errs); close(guarded) }()
		err := s.confirmSession()
		<-guarded
		if err != nil || s.connections.Load() == before {
			return err
		}
	}
}

// maxParallel limits the requests of a renewal or list at a time.
const maxParallel = 64

// guardAll makes sure that each node exists and is watched.
func (s *Store) guardAll(held []*acquisition, errs []error) {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, a := range held {
		if a == nil || s.isGuarded(a) {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = explain("renewing a lock", s.guard(a))
		})
	}
	all.Wait()
}

func (s *Store) isGuarded(a *acquisition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.guarded == s.connections.Load()
}

// guard watches the node of a holder. If the node is gone, guard notes it and returns nil.
func (s *Store) guard(a *acquisition) error {
	s.mu.Lock()
	path, token, connection := a.path(), a.token, s.connections.Load()
	n := s.watchedNodeLocked(a, path)
	s.mu.Unlock()
	_, stat, _, err := s.conn.GetW(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	current := a.node != "" && a.path() == path && a.token == token
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && tokenOf(stat.Czxid) != token:
		if current && !a.leaving {
			a.lost = nil // the owner learns it from the answer
			s.nodeVanishedLocked(a)
		}
		err = nil
	case err == nil && current && s.watches[path] == n: // otherwise an event has already arrived
		a.guarded = connection
		return nil
	}
	if a.path() != path { // a current holder stays registered: an earlier watch may still report its loss
		s.unwatchNodeLocked(a, path)
	}
	return err
}
