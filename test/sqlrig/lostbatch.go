package sqlrig

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/proxy"
)

// LostBatch shows that releases which share a transaction do not report a loss when the
// answer to its commit gets lost: they are not tried again, because they would find nothing.
func (d *Database) LostBatch(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, host(t, raw))
	store := d.Opened(t, At(raw, network.Addr()))
	warm(t, store)
	// Whether releases share a transaction is up to the moment at which they come.
	const rounds = 5
	for range rounds {
		if d.lostBatch(t, network, store) {
			return
		}
	}
	t.Errorf("two releases did not share a transaction in %d rounds", rounds)
}

// lostBatch reports whether the releases shared a transaction.
func (d *Database) lostBatch(t *testing.T, network *proxy.Proxy, store driver.Store) (together bool) {
	t.Helper()
	acquire := func(name string) driver.Grant {
		t.Helper()
		grant, err := store.Acquire(Within(t), Request(name))
		if err != nil {
			t.Fatal(err)
		}
		return grant
	}
	held := []driver.Grant{acquire("x"), acquire("y")}
	var work sync.WaitGroup
	defer work.Wait()
	var writers []*proxy.Conn // all that write at once
	for _, name := range []string{"v", "w"} {
		req := Request(name)
		kept := keep(network, carriesHolder(req), func() {})
		work.Go(func() {
			grant, err := store.Acquire(Within(t), req)
			if err == nil {
				err = store.Release(Within(t), grant)
			}
			if err != nil {
				t.Errorf("a writer: %v", err)
			}
		})
		writers = append(writers, kept(t))
	}
	lost := network.LoseReply(isCommit, true)
	released := make(chan error, len(held))
	for _, grant := range held {
		work.Go(func() { released <- store.Release(Within(t), grant) })
	}
	<-time.After(lateInside) // for both to queue behind the writers
	for _, w := range writers {
		w.Deliver()
	}
	for range held {
		err := <-released
		if errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release of a lock that was held, whose answer was lost: %v", err)
		}
		together = together || err != nil
	}
	for _, grant := range held { // should the transaction not have been committed
		if err := store.Release(Within(t), grant); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the second Release: %v", err)
		}
	}
	select {
	case <-lost:
	default:
		together = false
	}
	return together
}
