package sqllock

import "sync"

// maxNames bounds a set of names. It only holds hints, which may be forgotten.
const maxNames = 10_000

// names is a set of lock names that becomes empty when it is full. The zero value is empty.
type names struct {
	mu  sync.Mutex
	set map[string]struct{}
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.set[name]
	return ok
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil || len(n.set) >= maxNames {
		n.set = make(map[string]struct{})
	}
	n.set[name] = struct{}{}
}

func (n *names) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.set, name)
}
