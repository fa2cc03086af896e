package sqlrig

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// LostBatch shows that releases which share a transaction do not report a loss when the
// answer to its commit gets lost: they are not tried again, because they would find nothing.
func (d *Database) LostBatch(t *testing.T, raw string) {
	t.Helper()
	d.harmedBatch(t, raw, func(network *proxy.Proxy, _ driver.Grant) <-chan struct{} {
		return network.LoseReply(isCommit, true)
	}, func(err error) bool { return errors.Is(err, driver.ErrUnreachable) })
}

// UndoneBatch shows that calls which share a transaction are made again, one by one, if the
// transaction fails before it is committed.
func (d *Database) UndoneBatch(t *testing.T, raw string) {
	t.Helper()
	d.harmedBatch(t, raw, func(network *proxy.Proxy, held driver.Grant) <-chan struct{} {
		owner := []byte(held.Owner.Hex())
		return network.OnRequest(func(request []byte) bool { return bytes.Contains(request, owner) }, (*proxy.Conn).Reset)
	}, func(err error) bool { return err == nil })
}

// harmedBatch lets two releases share a transaction that is harmed. None of them reports a
// loss; expected says which outcome shows that they shared it.
func (d *Database) harmedBatch(t *testing.T, raw string, harm func(*proxy.Proxy, driver.Grant) <-chan struct{}, expected func(error) bool) {
	t.Helper()
	network := proxy.Run(t, host(t, raw))
	store := d.Opened(t, At(raw, network.Addr()))
	warm(t, store)
	// Whether releases share a transaction is up to the moment at which they come.
	const rounds = 30
	for range rounds {
		if d.tryBatch(t, network, store, harm, expected) {
			return
		}
	}
	t.Errorf("two releases did not share a transaction in %d rounds", rounds)
}

// tryBatch reports whether the releases shared a transaction.
func (d *Database) tryBatch(t *testing.T, network *proxy.Proxy, store driver.Store, harm func(*proxy.Proxy, driver.Grant) <-chan struct{}, expected func(error) bool) (together bool) {
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
			if err == nil {
				return
			}
			if !expected(err) { // it may share the transaction, too
				t.Errorf("a writer: %v", err)
			}
			undo := driver.Grant{Name: req.Name, Owner: req.Owner}
			if err := store.Release(Within(t), undo); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a writer's second Release: %v", err)
			}
		})
		writers = append(writers, kept(t))
	}
	harmed := harm(network, held[0])
	released := make(chan error, len(held))
	for _, grant := range held {
		work.Go(func() { released <- store.Release(Within(t), grant) })
	}
	<-time.After(lateInside) // for both to queue behind the writers
	for _, w := range writers {
		w.Deliver()
	}
	together = true
	for range held {
		err := <-released
		if errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release of a lock that was held: %v", err)
		}
		together = together && expected(err)
	}
	for _, grant := range held { // should the transaction not have been committed
		if err := store.Release(Within(t), grant); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the second Release: %v", err)
		}
	}
	select {
	case <-harmed:
	default:
		together = false
	}
	return together
}
