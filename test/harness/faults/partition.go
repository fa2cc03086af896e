package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/history"
)

// Partitions are the faults of a partition, and need Partition.
// PartitionsAcknowledged are the same for a store that waits for acknowledgement
// by replicas. Other tests on the same server notice them.
var (
	Partitions             = []Fault{{"the leader is cut off with a client", func(t *testing.T, r rig) { cutOff(t, r, false) }}}
	PartitionsAcknowledged = []Fault{{"the leader that needs acknowledgement is cut off with a client", func(t *testing.T, r rig) { cutOff(t, r, true) }}}
)

// cutOff checks that the old leader rejects writes soon, and that its holder
// stops trusting its lease. With acknowledgement, the holder stops before the new
// leader grants the lock. Without it, the last renewals of the old leader may
// overlap with the new grant, and the token protects the resource.
func cutOff(t *testing.T, r rig, acknowledged bool) {
	part := r.Partition
	inner := rig{part.Inside}
	holder, inside := inner.agent(t), dlock.New(inner.open(t), nil)
	t.Cleanup(func() {
		// The leader may have begun to reject between a lock and its release.
		if err := inside.Close(); err != nil && !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("close: %v", err)
		}
	})
	token := holder.mustLock("cut", r.TTL)
	holder.send(order{Do: "poll"})
	part.Cut()
	cut := time.Now()

	var err error
	for rejected := false; !rejected; rejected = errors.Is(err, dlock.ErrUnreachable) || errors.Is(err, r.notAcknowledged()) {
		if time.Since(cut) > part.RejectsWithin+slack {
			t.Fatalf("the leader that was cut off still answers after %v, with %v; want a rejection", time.Since(cut), err)
		}
		var lease *dlock.Lease
		if lease, err = inside.TryLock(t.Context(), "inside", dlock.WithTTL(r.TTL)); err == nil {
			_ = lease.Unlock(t.Context())
		}
		wait(t, 10*time.Millisecond)
	}
	t.Logf("%v after it was cut off, the old leader rejects: %v", time.Since(cut).Round(time.Millisecond), err)

	contender := r.lockWithRetry(t, r.client(t), "cut")
	granted := history.Now()
	t.Logf("%v after that the new leader has granted the lock: token %d after %d", time.Since(cut).Round(time.Millisecond), contender.Token(), token)
	a := holder.receive()
	if a.Err != "cancelled" {
		t.Errorf("the context of the holder that was cut off reports %q", a.Err)
	}
	if acknowledged {
		a.mustEndBefore(t, granted)
	}
	inTime(t, cut, part.RejectsWithin+r.TTL+2*slack, "the loss was noticed by the holder that was cut off")
	rises(t, contender.Token(), token)
	unlock(t, contender)
}

func (r rig) notAcknowledged() error {
	if r.Failover == nil || r.Failover.NotAcknowledged == nil {
		return errors.ErrUnsupported // which no store returns
	}
	return r.Failover.NotAcknowledged
}
