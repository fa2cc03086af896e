package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Partition is a leader that can be cut off from its replicas and from whoever
// appoints a new one, together with some of its clients.
type Partition struct {
	// Cut cuts it off.
	Cut func()
	// Inside is the rig of the clients that are cut off with it.
	Inside Rig
	// Refuses is how long it takes the leader to notice and to refuse all writes.
	Refuses time.Duration
}

// Partitions are for rigs with Partition. PartitionsAcknowledged are those of a
// store that demands acknowledgement by replicas. Others on the same server
// notice.
var (
	Partitions             = []Fault{{"the leader is cut off with a client", func(t *testing.T, r Rig) { cutOff(t, r, false) }}}
	PartitionsAcknowledged = []Fault{{"the leader that needs acknowledgement is cut off with a client", func(t *testing.T, r Rig) { cutOff(t, r, true) }}}
)

// cutOff: the old leader refuses soon, and its holder gives up. If it needed
// acknowledgement it does so before the new leader grants the lock. Otherwise
// what it renewed before it was refused may overlap, and the token decides.
func cutOff(t *testing.T, r Rig, acknowledged bool) {
	part := r.Partition
	holder, inside := part.Inside.puppet(t), part.Inside.client(t)
	token := holder.mustLock("cut", r.TTL)
	holder.send(order{Do: "believe"})
	part.Cut()
	cut := time.Now()

	var err error
	for refused := false; !refused; refused = errors.Is(err, dlock.ErrUnreachable) || errors.Is(err, r.notAcknowledged()) {
		if time.Since(cut) > part.Refuses+slack {
			t.Fatalf("the leader that was cut off still answers after %v, with %v; want that it refuses", time.Since(cut), err)
		}
		var lease *dlock.Lease
		if lease, err = inside.TryLock(t.Context(), "inside", dlock.WithTTL(r.TTL)); err == nil {
			_ = lease.Unlock(t.Context()) // it may refuse just now
		}
		wait(t, 10*time.Millisecond)
	}
	t.Logf("%v after it was cut off, the old leader refuses: %v", time.Since(cut).Round(time.Millisecond), err)

	rival := r.lockAnyhow(t, r.client(t), "cut")
	granted := monotonic()
	t.Logf("%v after that the new leader has granted the lock: token %d after %d", time.Since(cut).Round(time.Millisecond), rival.Token(), token)
	a := holder.hear()
	if a.Err != "cancelled" {
		t.Errorf("the context of the holder that was cut off says %q", a.Err)
	}
	if acknowledged {
		a.mustEndBefore(t, granted)
	}
	if over := time.Since(cut); over > part.Refuses+r.TTL+2*slack {
		t.Errorf("the holder that was cut off noticed after %v", over)
	}
	if rival.Token() <= token {
		t.Errorf("token %d after %d", rival.Token(), token)
	}
	unlock(t, rival)
}

func (r Rig) notAcknowledged() error {
	if r.Failover == nil || r.Failover.NotAcknowledged == nil {
		return errors.ErrUnsupported // which nobody returns
	}
	return r.Failover.NotAcknowledged
}
