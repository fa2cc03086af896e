package sqllock

import (
	"sync"
	"time"
)

// placeShare is the part of its TTL in which a place in the queue need not be kept
// again: a fifth. It takes a waiter longer to come for that, so that only those
// are spared who come twice within a moment.
const placeShare = 5

// placed remembers who has taken or kept a place a moment ago, and has nothing to
// write. The zero value is empty. It may forget.
type placed struct {
	mu    sync.Mutex
	until map[string]time.Time // by owner
}

func (p *placed) has(owner string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until[owner])
}

func (p *placed) add(owner string, ttl time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil || len(p.until) >= maxNames {
		p.until = make(map[string]time.Time)
	}
	p.until[owner] = time.Now().Add(ttl / placeShare)
}

func (p *placed) remove(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.until, owner)
}
