package sqlservers

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestProcessesShareThePolls: a process that waits for the same name as 63 others polls less often
// than one that is alone, and as often again when they have left. The lock is free, so that each poll
// wakes the waiter. PostgreSQL notifies only if the pool allows three connections.
func TestProcessesShareThePolls(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t, "scheme=row", "max_open=2")
		store, admin := s.open(t), s.admin(t)
		var polls atomic.Int64
		stop, err := store.Watch(t.Context(), request("x"), func() { polls.Add(1) })
		check(t, err)
		defer stop()
		settled := func() int64 {
			<-time.After(time.Second) // the processes are counted
			before := polls.Load()
			<-time.After(time.Second)
			return polls.Load() - before
		}
		alone := settled()
		var rows []string
		for i := range 63 {
			rows = append(rows, fmt.Sprintf("('x', 'process %d', false, %d)", i, time.Now().Add(30*time.Second).UnixMilli()))
		}
		_, err = admin.ExecContext(t.Context(), `INSERT INTO dlock_queue (name, owner, fair, expires) VALUES `+strings.Join(rows, ", "))
		check(t, err)
		shared := settled()
		_, err = admin.ExecContext(t.Context(), `DELETE FROM dlock_queue WHERE owner LIKE 'process %'`)
		check(t, err)
		again := settled()
		t.Logf("polls in a second: alone %d, with 63 other processes %d, alone again %d", alone, shared, again)
		if shared == 0 || shared > 45 { // one in 32 ms
			t.Errorf("with 63 other processes %d polls in a second, want about 30", shared)
		}
		if alone <= shared || again <= shared { // 300 and more, but a machine may be busy
			t.Errorf("alone %d and %d polls in a second, want more than the %d with 63 other processes", alone, again, shared)
		}
	})
}
