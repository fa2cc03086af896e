package zklock

import (
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// parents remembers which containers are known to have no data. Every acquisition
// writes to the container; what somebody else has put there is written again.
type parents struct {
	mu    sync.Mutex
	empty map[string]struct{}
}

// maxParents limits what is remembered.
const maxParents = 10_000

// anyVersion makes a write unconditional.
const anyVersion = -1

// prepare makes sure that the container exists, and returns what to write to it and
// which version of it that is for.
func (p *parents) prepare(s *Store, parent string) (data []byte, version int32, err error) {
	if p.known(parent) {
		return nil, anyVersion, nil
	}
	data, stat, err := s.conn.Get(parent)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if err := s.createParent(parent); err != nil {
			return nil, 0, err
		}
	case err != nil:
		return nil, 0, err
	case len(data) > 0:
		return data, stat.Version, nil
	}
	p.remember(parent)
	return nil, anyVersion, nil
}

// createParent creates the container of a lock. The root may have gone: Curator makes
// containers of all nodes above a lock, which ZooKeeper removes when they are empty.
func (s *Store) createParent(parent string) error {
	_, err := s.conn.CreateContainer(parent, nil, zk.FlagContainer, s.acl)
	if errors.Is(err, zk.ErrNoNode) {
		s.prepared.Store(false)
		if err := s.findRoot(); err != nil {
			return err
		}
		_, err = s.conn.CreateContainer(parent, nil, zk.FlagContainer, s.acl)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

func (p *parents) known(parent string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.empty[parent]
	return known
}

func (p *parents) remember(parent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.empty == nil || len(p.empty) >= maxParents {
		p.empty = make(map[string]struct{})
	}
	p.empty[parent] = struct{}{}
}

func (p *parents) forget(parent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.empty, parent)
}
