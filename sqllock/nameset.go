package sqllock

import "sync"

// maxNames bounds a nameSet. It only holds hints, which may be forgotten.
const maxNames = 10_000

// nameSet is a set of lock names that forgets them all when it is full. The
// zero value is empty.
type nameSet struct {
	mu    sync.Mutex
	names map[string]struct{}
}

func (n *nameSet) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.names[name]
	return ok
}

func (n *nameSet) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil || len(n.names) >= maxNames {
		n.names = make(map[string]struct{})
	}
	n.names[name] = struct{}{}
}

func (n *nameSet) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, name)
}
