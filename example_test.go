package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func Example() {
	store := memlock.New() // in a service: sqllock, or another store
	client := dlock.New(store, nil)
	defer client.Close()
	ctx := context.Background()

	err := client.Do(ctx, "orders/42", func(ctx context.Context) error {
		fmt.Println("no other process charges order 42 now")
		return nil
	})
	fmt.Println(err)
	// Output:
	// no other process charges order 42 now
	// <nil>
}

func ExampleClient_TryLock() {
	store := memlock.New()
	here := dlock.New(store, &dlock.Options{Holder: driver.Holder{Host: "web-1", PID: 4711, Program: "billing"}})
	there := dlock.New(store, nil)
	defer here.Close()
	defer there.Close()
	ctx := context.Background()

	lease, _ := here.Lock(ctx, "nightly-report", dlock.WithNote("started by cron"))
	_, err := there.TryLock(ctx, "nightly-report")
	fmt.Println(errors.Is(err, dlock.ErrHeld))
	fmt.Println(err)
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// true
	// "nightly-report" is held by billing (pid 4711) on web-1: "started by cron"
	// <nil>
}

// A lease that times out while its holder is busy: its context and Unlock report it.
func ExampleWithFixedTTL() {
	client := dlock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	lease, _ := client.Lock(ctx, "import", dlock.WithFixedTTL(20*time.Millisecond))
	<-lease.Context().Done()
	fmt.Println(errors.Is(context.Cause(lease.Context()), dlock.ErrLost))
	fmt.Println(errors.Is(lease.Unlock(ctx), dlock.ErrNotHeld))
	// Output:
	// true
	// true
}

// The context of a lease re-enters its lock.
func ExampleLease_Context() {
	client := dlock.New(memlock.New(), nil)
	defer client.Close()

	outer, _ := client.Lock(context.Background(), "account/7")
	inner, _ := client.Lock(outer.Context(), "account/7") // does not wait for itself
	fmt.Println(inner.Token() == outer.Token())
	_ = inner.Unlock(context.Background())
	fmt.Println(outer.Context().Err()) // still held
	_ = outer.Unlock(context.Background())
	fmt.Println(context.Cause(outer.Context()))
	// Output:
	// true
	// <nil>
	// lock released
}

// LockAll acquires all or none, whatever the order of the names.
func ExampleClient_LockAll() {
	client := dlock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	leases, err := client.LockAll(ctx, []string{"account/9", "account/7"}, dlock.WithWait(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(leases.Names())
	fmt.Println(leases.Unlock(ctx))
	// Output:
	// [account/7 account/9]
	// <nil>
}

// A resource that checks tokens is safe from a holder that was stopped for longer than
// its lease.
func ExampleLease_Token() {
	client := dlock.New(memlock.New(), nil)
	defer client.Close()
	ctx := context.Background()

	var seen uint64 // in a database: a column, compared in the UPDATE itself
	write := func(token uint64) bool {
		if token < seen {
			return false
		}
		seen = token
		return true
	}

	stale, _ := client.Lock(ctx, "file", dlock.WithFixedTTL(time.Millisecond))
	<-stale.Context().Done() // the first holder is stopped, and its lease ends
	fresh, _ := client.Lock(ctx, "file")
	fmt.Println("fresh:", write(fresh.Token()))
	fmt.Println("stale:", write(stale.Token()))
	_ = fresh.Unlock(ctx)
	// Output:
	// fresh: true
	// stale: false
}

func ExampleClient_Locks() {
	store := memlock.New()
	client := dlock.New(store, &dlock.Options{Holder: driver.Holder{Host: "web-1", PID: 1, Program: "billing"}})
	defer client.Close()
	ctx := context.Background()

	lease, _ := client.Lock(ctx, "orders/42")
	for lock, err := range client.Locks(ctx, "orders/") {
		fmt.Println(lock.Name, lock.Holder, err)
		fmt.Println(client.Break(ctx, lock.Name, lock.Token)) // revoke it
	}
	fmt.Println(errors.Is(lease.Unlock(ctx), dlock.ErrNotHeld))
	// Output:
	// orders/42 billing (pid 1) on web-1 <nil>
	// <nil>
	// true
}
