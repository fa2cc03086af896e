package memcachelock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// nameKey is the item with the server's name. It begins unlike those of locks.
const nameKey = "dlock-server"

// nameTTL is how long it stays if the one who gave it is killed.
const nameTTL = 24 * time.Hour

// naming remembers the item with the server's name, if this store wrote it.
type naming struct {
	mu   sync.Mutex
	name string
}

func (n *naming) gave(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.name = name
}

// Identify implements driver.Identifier. A memcached has no name of its own, and what
// it tells of itself, two of them may have in common. So the first who asks gives it one,
// at random, which ends with that store.
func (s *Store) Identify(ctx context.Context) (name string, err error) {
	err = s.call(ctx, func(c *conn) error {
		for range tries {
			mine := driver.NewOwner().Hex()
			_, f, err := c.put(nameKey, mine, c.clock.end(c.began, nameTTL), 0)
			switch {
			case f != nil:
				if name = f.mark; name == mine {
					s.naming.gave(name)
				}
				return nil
			case err != nil:
				return err
			}
		}
		return refusal("its name comes and goes")
	})
	return name, err
}

// unnameLimit bounds what Close tells the server.
const unnameLimit = 500 * time.Millisecond

// unname deletes the name that this store gave, if it can be done. It looks first: a
// server that has restarted since may have another name, under the same number.
func (s *Store) unname() {
	s.naming.mu.Lock()
	defer s.naming.mu.Unlock()
	if s.naming.name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unnameLimit)
	defer cancel()
	_ = s.pool.with(ctx, nil, func(c *conn) error { // it expires otherwise
		f, err := c.get(nameKey)
		if err != nil || f == nil || f.mark != s.naming.name {
			return err
		}
		_, err = c.delete(nameKey, f.cas)
		return err
	})
}
