package sqlsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestNoHandOverOfALostLock: the connection of a process breaks, and another process gets the lock. The next
// waiter of the first process does not get it, although the process does not know of the break yet.
func TestNoHandOverOfALostLock(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		client := dlock.New(s.store(t, s.openDB(t, p.Addr())), nil)
		defer client.Close()
		rival := s.store(t, s.open(t))
		acquire := func(until string) (grant driver.Grant) {
			await.Until(t, until, func() bool {
				var err error
				grant, err = rival.Acquire(t.Context(), request("x"))
				return err == nil
			})
			return grant
		}
		for range 2 {
			blocker := acquire("the attempts of the last round are undone")
			leases := make(chan *dlock.Lease, 2)
			ctx, leave := context.WithCancel(t.Context())
			for range 2 {
				go func() {
					lease, err := client.Lock(ctx, "x")
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("Lock: %v", err)
					}
					leases <- lease
				}()
			}
			<-time.After(50 * time.Millisecond) // for both to wait
			check(t, rival.Release(t.Context(), blocker))
			first := await.Event(t, leases, "the lock")
			p.Reset()
			taken := acquire("the lock of the broken connection is free")
			_ = first.Unlock(t.Context()) // which finds that it is lost
			select {
			case lease := <-leases:
				t.Errorf("a waiter got the lock with token %d, which another process has with %d", lease.Token(), taken.Token)
				leases <- lease
			case <-time.After(100 * time.Millisecond):
			}
			leave()
			if lease := await.Event(t, leases, "the waiter has left"); lease != nil {
				_ = lease.Unlock(t.Context())
			}
			check(t, rival.Release(t.Context(), taken))
		}
	})
}
