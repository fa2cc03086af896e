package sqllock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

const (
	// countInterval is the time between two counts of the processes that wait.
	countInterval = 250 * time.Millisecond
	// maxCounted is the number of awaited names up to which they are counted.
	maxCounted = 8
)

// crowd is how many processes poll for the same names as this one, as of the last count. Together they
// poll as often as a few processes would: many would keep the holder from running, and it does not
// matter which of them finds the lock free. A process counts from the moment that its waiters are listed.
type crowd struct {
	processes int
	counted   time.Time
}

// count counts the processes again if it is time. If that fails, the last count stays.
func (c *crowd) count(ctx context.Context, s *Store, names []string) {
	if time.Since(c.counted) < countInterval {
		return
	}
	c.counted = time.Now()
	if n, err := s.countProcesses(ctx, names); err == nil {
		c.processes = n
	}
}

// countProcesses returns how many processes wait for the name that has the fewest. A process that is
// alone with a name polls as often as if it waited for no other. So does one whose waiters have to be
// found by its own polls: a fair waiter, because no other process may take the lock before it, and
// those that may enter beside others.
func (s *Store) countProcesses(ctx context.Context, names []string) (fewest int, err error) {
	if len(names) > maxCounted || s.waiters.onlyPolledFor() {
		return 0, nil
	}
	for _, name := range names {
		var n int
		if err := s.run().One(ctx, statement.Processes, []any{name}, &n); err != nil {
			return 0, err
		}
		if fewest == 0 || n < fewest {
			fewest = n
		}
		if n <= 1 {
			break
		}
	}
	return fewest, nil
}

// onlyPolledFor reports whether a waiter depends on the polls of this process.
func (ws *waiters) onlyPolledFor() bool {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.AllLocked() {
		if w.req.Fair || w.Mode() != (driver.Mode{}) {
			return true
		}
	}
	return false
}
