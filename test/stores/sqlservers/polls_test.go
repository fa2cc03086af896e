package sqlservers

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestProcessesShareThePolls: a process that waits for the same name as 63 others polls less often
// than one that is alone because they have left. The lock is free, so that each poll wakes the waiter.
// PostgreSQL notifies only if the pool allows three connections.
func TestProcessesShareThePolls(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t, "scheme=row", "max_open=2")
		store, admin := s.open(t), s.admin(t)
		var polls atomic.Int64
		stop, err := store.Watch(t.Context(), request("x"), func() { polls.Add(1) })
		check(t, err)
		defer stop()
		// becomes waits until there are that many polls in a second. A machine that is busy makes few of them.
		becomes := func(when string, least, most int64) {
			t.Helper()
			last := polls.Load()
			for range 30 {
				<-time.After(time.Second)
				now := polls.Load()
				if n := now - last; n >= least && n <= most {
					return
				}
				last = now
			}
			t.Errorf("%s there are never %d to %d polls in a second", when, least, most)
		}
		const shared = 45 // somewhat more than one in 32 ms
		var rows []string
		for i := range 63 {
			rows = append(rows, fmt.Sprintf("('x', 'process %d', 'none', false, %d)", i, time.Now().Add(30*time.Second).UnixMilli()))
		}
		_, err = admin.ExecContext(t.Context(), `INSERT INTO dlock_queue (name, owner, mode, fair, expires) VALUES `+strings.Join(rows, ", "))
		check(t, err)
		becomes("with 63 other processes", 1, shared)
		before := polls.Load()
		<-time.After(2 * time.Second) // a busy machine makes fewer, never more
		if n := polls.Load() - before; n > 2*shared {
			t.Errorf("with 63 other processes there are %d polls in two seconds, want about 60", n)
		}
		_, err = admin.ExecContext(t.Context(), `DELETE FROM dlock_queue WHERE owner LIKE 'process %'`)
		check(t, err)
		becomes("alone", shared+1, math.MaxInt64)
	})
}

// TestPollsAfterTheClockWentBack: a server whose clock was set back by an hour has a lock that was granted
// in the future. Its waiters poll as seldom as those for any lock that is held for long.
func TestPollsAfterTheClockWentBack(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t, "scheme=row", "max_open=2") // PostgreSQL notifies only if the pool allows three
		acquire(t, s.open(t), "x")
		store, network := s.behindProxy(t)
		stop, err := store.Watch(t.Context(), request("x"), func() {})
		check(t, err)
		defer stop()
		var requests atomic.Int64
		network.OnRequest(func([]byte) bool { requests.Add(1); return false }, nil)
		inASecond := func() int64 {
			<-time.After(time.Second / 2) // until nothing moves any more
			before := requests.Load()
			<-time.After(time.Second)
			return requests.Load() - before
		}
		calm := inASecond()
		run(t, s.admin(t), `UPDATE dlock_locks SET since = since + 3600000, expires = expires + 3600000`)
		after := inASecond()
		t.Logf("%d requests in a second, %d after the clock was set back", calm, after)
		if after > 3*calm {
			t.Errorf("%d requests in a second after the clock was set back, %d before", after, calm)
		}
	})
}
