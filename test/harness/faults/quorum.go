package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Member is one of the servers of a quorum.
type Member struct {
	// Rig is this member as a store of its own.
	Rig Rig
	// Link is between the clients of the quorum and this member.
	Link *proxy.Proxy
	// Kill kills it. RestartEmpty starts it again without its data.
	Kill, RestartEmpty func() error
}

// Quorum are the faults of a store that is made of five others, for rigs with
// Members. Others on the same members notice.
var Quorum = []Fault{
	{"two of five members die", minorityDies},
	{"three of five members die", majorityDies},
	{"a member comes back empty and gives its vote again", memberForgets},
	{"a member comes back empty and is told by a renewal", memberIsTold},
	{"a member comes back empty when all that it forgot is over", memberIsDelayed},
}

// unreachable cuts members off. Nothing that was sent arrives later.
func (m Member) unreachable(is bool) {
	m.Link.Hang(is)
	m.Link.Reset()
}

func (r Rig) kill(t testing.TB, members ...int) {
	t.Helper()
	for _, i := range members {
		if err := r.Members[i].Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// minorityDies: nothing happens.
func minorityDies(t *testing.T, r Rig) {
	c := r.client(t)
	kept := r.lock(t, c, "kept")
	r.kill(t, 0, 3)
	wait(t, r.TTL+r.TTL/2)
	if err := kept.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
	r.refuses(t, "kept", "three of five members know it")
	unlock(t, kept)
	if token := r.grants(t, "kept", "it was unlocked"); token <= kept.Token() {
		t.Errorf("token %d after %d", token, kept.Token())
	}
}

// majorityDies: no lock is granted, the votes that were given are given back, and
// the holder finds out in time.
func majorityDies(t *testing.T, r Rig) {
	c := r.client(t)
	lease := r.lock(t, c, "doomed")
	r.kill(t, 0, 1, 2)
	dead := time.Now()
	// The TTL is so long that what is gone was given back, and did not expire.
	if partial, err := c.Lock(t.Context(), "partial", dlock.WithTTL(time.Hour)); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock with two of five members: %v, %v; want that the store is unreachable", partial, err)
	}
	for _, m := range r.Members[3:] {
		m.Rig.mustBecomeFree(t, "partial")
	}
	happens(t, lease.Context().Done(), "the end of the lease")
	if took := time.Since(dead); took > r.TTL+slack {
		t.Errorf("the lease ended %v after its majority died; the TTL is %v", took, r.TTL)
	}
	unlockLost(t, lease)
}

// bareMajority locks a name with the first three of five members, for good.
func (r Rig) bareMajority(t testing.TB, name string, opt dlock.Option) *dlock.Lease {
	t.Helper()
	c := r.client(t)
	unlock(t, r.lockAnyhow(t, c, warmUpName()))
	for _, m := range r.Members[3:] {
		m.unreachable(true)
	}
	lease := r.lock(t, c, name, opt)
	for i, m := range r.Members {
		if knows := listed(t, m.Rig.open(t), name); knows != (i < 3) {
			t.Fatalf("member %d knows of the lock: %v", i+1, knows)
		}
	}
	return lease
}

// memberForgets: the rival is refused or, if it has a majority now, the token
// tells which one is to be obeyed.
func memberForgets(t *testing.T, r Rig) {
	resource := new(fenced)
	lease := r.bareMajority(t, "forgotten", dlock.WithFixedTTL(failoverTTL)) // no renewal puts it right
	if !resource.write(lease.Token()) {
		t.Fatal("the holder may not write")
	}
	r.restartEmpty(t, 2)
	for _, m := range r.Members[3:] {
		m.unreachable(false)
	}
	// A quorum may draw tokens that are ahead of its members' clocks, by as much as
	// a call to a member took. A member that came back sooner than that could
	// give a smaller one.
	wait(t, r.TTL/2)
	rival, err := r.client(t).Lock(t.Context(), "forgotten", dlock.WithTTL(r.TTL), dlock.WithWait(r.TTL/2))
	if errors.Is(err, dlock.ErrHeld) {
		t.Logf("the rival is refused: %v", err)
		unlock(t, lease)
		return
	}
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	t.Logf("two have the lock, with the tokens %d and %d", lease.Token(), rival.Token())
	if rival.Token() <= lease.Token() || !resource.write(rival.Token()) {
		t.Errorf("token %d after %d", rival.Token(), lease.Token())
	}
	if resource.write(lease.Token()) {
		t.Errorf("the write of the first holder with token %d got through after token %d", lease.Token(), rival.Token())
	}
	unlock(t, rival)
	_ = lease.Unlock(context.Background()) // what is left of it
}

func (r Rig) restartEmpty(t testing.TB, member int) {
	t.Helper()
	if err := r.Members[member].RestartEmpty(); err != nil {
		t.Fatal(err)
	}
}

// memberIsTold: a renewal gives the lock back to members that do not know it, so
// that the rival is refused.
func memberIsTold(t *testing.T, r Rig) {
	lease := r.bareMajority(t, "told", dlock.WithTTL(2*r.TTL))
	for _, m := range r.Members[3:] {
		m.unreachable(false)
	}
	r.restartEmpty(t, 2)
	deadline := time.Now().Add(limit)
	for _, m := range r.Members[2:] {
		for store := m.Rig.open(t); !listed(t, store, "told"); wait(t, 10*time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no renewal tells the members of the lock")
			}
		}
	}
	r.refuses(t, "told", "all members know it")
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
	unlock(t, lease)
}

// memberIsDelayed: nobody gets a majority before the holder has stopped to
// believe.
func memberIsDelayed(t *testing.T, r Rig) {
	lease := r.bareMajority(t, "delayed", dlock.WithFixedTTL(r.TTL))
	r.kill(t, 2)
	killed := time.Now()
	for _, m := range r.Members[3:] {
		m.unreachable(false)
	}
	belief := make(chan answer, 1)
	go func() { belief <- believe(lease.Context().Err) }()
	restarted := make(chan error, 1)
	time.AfterFunc(r.TTL-time.Since(killed), func() { restarted <- r.Members[2].RestartEmpty() })
	grant, granted := r.seize(t, r.open(t), "delayed")
	happens(t, belief, "the end of the lease").mustEndBefore(t, granted)
	if grant.Token <= lease.Token() {
		t.Errorf("token %d after %d", grant.Token, lease.Token())
	}
	if err := happens(t, restarted, "the restart"); err != nil {
		t.Fatal(err)
	}
	unlockLost(t, lease)
}
