package memcachelock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Find implements driver.Finder. memcached cannot list.
func (s *Store) Find(ctx context.Context, name string) (info driver.Info, held bool, err error) {
	err = s.call(ctx, func(c *conn) error {
		it, err := c.get(name)
		if err != nil || it == nil {
			return err
		}
		h := c.held(name, it)
		info, held = driver.Info{Name: name, Token: h.Token, Holder: h.Holder, Remaining: h.Remaining}, true
		return nil
	})
	return info, held, err
}
