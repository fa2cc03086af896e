package sqllock

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// maxCounted is the number of awaited names up to which a process counts the others that wait for them.
const maxCounted = 8

// crowds are how many processes wait for each awaited name. Those that wait for one name poll together as
// often as a few would: the polls of many would keep its holder from running. A process counts as long
// as its row is written again and again.
type crowds map[string]int

// countProcesses counts the processes that wait for each name. If that fails, none is counted until the
// next time.
func (s *Store) countProcesses() {
	s.waiters.Lock()
	names, _ := s.waiters.AwaitedLocked()
	s.waiters.Unlock()
	if len(names) == 0 { // for a moment: the process has the lock, and waits for it soon
		return
	}
	var counted crowds
	if len(names) <= maxCounted {
		counted = make(crowds, len(names))
		ctx, cancel := s.background()
		defer cancel()
		for _, name := range names {
			var n int
			// The rows of processes that have died, or that were written before a clock stepped back, do not count.
			oldest := publishTTL - publishRefresh - publishLateness
			args := []any{name, oldest.Milliseconds(), publishTTL.Milliseconds()}
			if s.read(ctx, "count", func() error { return s.run().One(ctx, statement.Processes, args, &n) }) != nil {
				break
			}
			counted[name] = n
		}
	}
	s.waiters.Lock()
	s.waiters.crowds = counted
	s.waiters.Unlock()
}

// crowdLocked returns how many processes share the polls with this one: those that wait for the name with
// the fewest. A process polls as often as if it were alone if one of its waiters depends on that: a fair
// one, because no other process may take the lock before it, and one that waits for others to share the lock
// with, or for a permit.
func (ws *waiters) crowdLocked(names []string, placed func(owner string) bool) (fewest int) {
	if len(names) > maxCounted {
		return 0
	}
	for i, name := range names {
		if n := ws.crowds[name]; i == 0 || n < fewest {
			fewest = n
		}
		for _, w := range ws.Of(name) {
			if w.req.Fair || w.Mode() != (driver.Mode{}) || placed(w.owner) {
				return 0
			}
		}
	}
	return fewest
}
