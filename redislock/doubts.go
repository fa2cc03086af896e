package redislock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// doubts are owners that may hold a lock with a token that nobody must be told: it
// was proposed, and is too low if the counter was ahead of it. That is known only
// from the answer, which was not read or said so. Whoever asks again gets
// another one.
type doubts struct {
	any atomic.Bool // there are some: hardly ever

	mu     sync.Mutex
	tokens map[driver.Owner]doubt
}

type doubt struct {
	token uint64
	until time.Time // when the lock is over at the latest, unless it is renewed
}

// add notes that the owner may hold a lock with that token.
func (d *doubts) add(owner driver.Owner, token uint64, ttl time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tokens == nil {
		d.tokens = make(map[driver.Owner]doubt)
	}
	if len(d.tokens)%1024 == 1023 { // of those who never came back
		now := time.Now()
		for o, doubt := range d.tokens {
			if now.After(doubt.until) {
				delete(d.tokens, o)
			}
		}
	}
	if _, known := d.tokens[owner]; !known { // the first is the only one that was proposed
		d.tokens[owner] = doubt{token, time.Now().Add(2 * ttl)}
	}
	d.any.Store(true)
}

// token returns the token that is in doubt, or zero.
func (d *doubts) token(owner driver.Owner) uint64 {
	if !d.any.Load() {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tokens[owner].token
}

// clear is for owners that hold a lock with a good token, or none.
func (d *doubts) clear(owner driver.Owner) {
	if !d.any.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tokens, owner)
	d.any.Store(len(d.tokens) > 0)
}
