package zklock

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// Renew implements driver.Store. One request renews the session, and with it all grants.
//
// The first renewal of a grant, and the first on another connection, also reads and watches its
// node. After a reconnection the client restores its watches, but the server does not report a node
// that was meanwhile replaced by another with the same name.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	errs, err := detached(ctx, s, "renewing locks", func(ctx context.Context) ([]error, error) { return s.renew(ctx, grants) })
	if err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	return errs
}

func (s *Store) renew(ctx context.Context, grants []driver.Grant) ([]error, error) {
	held, errs, found := make([]*hold, len(grants)), make([]error, len(grants)), false
	s.mu.Lock()
	for i, g := range grants {
		if h := s.holds[holdID{g.Name, g.Owner}]; h != nil && s.isHeldLocked(h, g.Token) {
			held[i], found = h, true
		}
	}
	s.mu.Unlock()
	if found {
		if err := s.retry(ctx, func() error { return s.renewHeld(held, errs) }); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, h := range held {
		switch {
		case h == nil || !s.isHeldLocked(h, grants[i].Token):
			errs[i] = driver.ErrNotHeld
		case errs[i] == nil:
			s.setExpiryLocked(h, h.ttl)
		}
	}
	if errors.Join(errs...) == nil {
		return nil, nil
	}
	return errs, nil
}

func (s *Store) isHeldLocked(h *hold, token uint64) bool {
	return h.held && !h.leaving && h.node != "" && h.session == s.sessionID.Load() && (token == 0 || h.token == token) && !h.expiredLocked() && s.keepsPromise(h)
}

// renewHeld asks the leader whether the session lives, and reads the nodes that are not watched
// yet, both on the same connection.
func (s *Store) renewHeld(held []*hold, errs []error) error {
	for {
		before := s.connections.Load()
		watched := make(chan struct{})
		go func() { s.watchOwnAll(held, errs); close(watched) }()
		err := s.confirmSession()
		<-watched
		if err != nil || s.connections.Load() == before {
			return err
		}
	}
}

// maxParallel limits the requests of a renewal or list at a time.
const maxParallel = 64

// watchOwnAll makes sure that each node exists and is watched. It overwrites the errors of earlier
// rounds.
func (s *Store) watchOwnAll(held []*hold, errs []error) {
	var all sync.WaitGroup
	running := make(chan struct{}, maxParallel)
	for i, h := range held {
		errs[i] = nil
		watched := h == nil
		s.withLock(func() { watched = watched || h.watchedBy == s.connections.Load() })
		if watched {
			continue
		}
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			errs[i] = explain("renewing a lock", s.watchOwn(h))
		})
	}
	all.Wait()
}

// watchOwn watches the nodes that a lock ends with. If one is gone, it notes that and returns nil.
func (s *Store) watchOwn(h *hold) error {
	s.mu.Lock()
	paths, token, connection := h.pathsLocked(), h.token, s.connections.Load()
	var watched []*watchedNode
	for _, path := range paths {
		watched = append(watched, s.registerLocked(h, path))
	}
	s.mu.Unlock()
	err := s.readAndWatch(paths, token)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := h.pathsLocked()
	stillWatched := func(path string, n *watchedNode) bool { return s.watches[path] == n }
	current := h.node != "" && slices.Equal(now, paths) && h.token == token
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if current && !h.leaving {
			h.lost = nil // the owner learns it from the answer
			s.nodeLostLocked(h)
		}
		err = nil
	case err == nil && current && slices.EqualFunc(paths, watched, stillWatched): // otherwise an event has already arrived
		h.watchedBy = connection
		return nil
	}
	for _, path := range paths {
		if !slices.Contains(now, path) { // a current holder stays registered: an earlier watch may still report its loss
			s.unregisterLocked(h, path)
		}
	}
	return err
}

// readAndWatch reads and watches nodes. ErrNoNode says that one is gone, or that lock-0, whose name
// is used again, has another token.
func (s *Store) readAndWatch(paths []string, token uint64) error {
	for _, p := range paths {
		_, stat, _, err := s.conn.GetW(p)
		if err != nil {
			return err
		}
		if path.Base(p) == unfairNode && tokenOf(stat.Czxid) != token {
			return zk.ErrNoNode
		}
	}
	return nil
}
