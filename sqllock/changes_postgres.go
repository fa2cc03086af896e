package sqllock

import (
	"context"
	"sync"
)

// followPostgres listens for the names that become free, and wakes just those who want
// them. While that does not work they are looked at.
func followPostgres(s *Store) changes {
	ctx, cancel := context.WithCancel(s.ctx)
	l := newListener(s, s.watchers.wake)
	var work sync.WaitGroup
	work.Go(func() { l.run(ctx) })
	return changes{
		events: l.turned,
		pace:   &tempo{told: l.hears.Load},
		stop: func() {
			cancel()
			work.Wait()
		},
	}
}
