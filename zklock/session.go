package zklock

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// prepare authenticates and finds the root before the first call. Calls fail until it succeeds.
func (s *Store) prepare(ctx context.Context) error {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared {
		return nil
	}
	if user := s.opts.User; user != "" && !s.authenticated {
		if err := s.conn.AddAuth("digest", []byte(user+":"+s.opts.Password)); err != nil {
			return explain("authenticating", err)
		}
		s.authenticated = true // the client repeats it on new connections
	}
	if err := s.retry(ctx, s.ensureRoot); err != nil {
		return explain("looking for the root", err)
	}
	s.prepared = true
	return nil
}

func (s *Store) ensureRoot() error {
	exists, _, err := s.conn.Exists(s.rootPath())
	switch {
	case err != nil || exists:
		return err
	case s.opts.RequireRoot:
		return fmt.Errorf("%w: %s", errNoRoot, s.rootPath())
	}
	for i, c := range s.root + "/" {
		if c != '/' || i == 0 {
			continue
		}
		if _, err := s.conn.Create(s.root[:i], nil, zk.FlagPersistent, s.opts.ACL); ignore(err, zk.ErrNodeExists) != nil {
			return fmt.Errorf("creating %s: %w", s.root[:i], err)
		}
	}
	return nil
}

// handle receives the events of the session and of watched nodes. The client keeps the
// order of events and answers. handle must not block.
func (s *Store) handle(event zk.Event) {
	switch {
	case event.Type != zk.EventSession:
		s.nodeEvent(event)
	case event.State == zk.StateHasSession:
		s.noteSessionBegin(s.conn.SessionID())
	case event.State == zk.StateExpired:
		s.noteSessionEnd()
		s.setConnected(false)
	case event.State == zk.StateDisconnected, event.State == zk.StateConnecting:
		s.setConnected(false)
	}
}

// noteSessionBegin notes a session, new or resumed on another connection. It wakes all waiters,
// and the next renewals read the holders' nodes: the store may have missed events. A holder whose
// promise cannot be kept any more has lost its lock, and keeps the nodes while it stops.
func (s *Store) noteSessionBegin(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionID.Store(id)
	s.connections.Add(1)
	for _, h := range s.holds {
		if h.held && !s.keepsPromise(h) {
			s.reportLossLocked(h)
		}
	}
	s.forgetQueuesLocked()
	s.setConnected(true)
	s.wakeAllLocked()
}

// noteSessionEnd notes that the nodes of all holds are gone.
func (s *Store) noteSessionEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionID.Store(0)
	clear(s.watches)
	for _, h := range s.holds {
		s.nodeLostLocked(h)
		clear(h.watching)
	}
	s.wakeAllLocked()
}
