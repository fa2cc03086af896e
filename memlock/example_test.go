package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// Shop is a program that uses dlock. Its caller chooses the store.
type Shop struct {
	locks *dlock.Client
	stock int
}

var errSoldOut = errors.New("sold out")

func (s *Shop) Sell(ctx context.Context) error {
	return s.locks.Do(ctx, "stock", func(context.Context) error {
		if s.stock == 0 {
			return errSoldOut
		}
		s.stock--
		return nil
	})
}

// In a unit test the program gets a store in memory: nothing to start, nothing
// to clean up.
func Example() {
	client := dlock.New(memlock.New(), nil)
	defer client.Close()

	shop := &Shop{locks: client, stock: 1}
	fmt.Println(shop.Sell(context.Background()))
	fmt.Println(shop.Sell(context.Background()))
	// Output:
	// <nil>
	// sold out
}

// Two clients of one store are two machines. Here the other machine has the
// lock, and the program must not wait for it for longer than it should.
func ExampleNew_contention() {
	store := memlock.New()
	ours, theirs := dlock.New(store, nil), dlock.New(store, nil)
	defer ours.Close()
	defer theirs.Close()

	ctx := context.Background()
	lease, err := theirs.Lock(ctx, "report", dlock.WithNote("nightly run"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = ours.Lock(ctx, "report", dlock.WithWait(10*time.Millisecond))
	if held, ok := errors.AsType[*dlock.HeldError](err); ok {
		fmt.Println(held.Name, "is held:", held.Holder.Note)
	}
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// report is held: nightly run
	// <nil>
}

// Breaking the lock from outside shows what the program does when it loses one.
func ExampleStore_Break() {
	store := memlock.New()
	client := dlock.New(store, nil)
	defer client.Close()

	ctx := context.Background()
	lease, err := client.Lock(ctx, "report", dlock.WithTTL(300*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Break(ctx, "report", lease.Token()); err != nil {
		fmt.Println(err)
		return
	}
	<-lease.Context().Done() // within a third of the TTL, when the next renewal is due
	fmt.Println(errors.Is(context.Cause(lease.Context()), dlock.ErrLost))
	fmt.Println(errors.Is(lease.Unlock(ctx), dlock.ErrNotHeld))
	// Output:
	// true
	// true
}
