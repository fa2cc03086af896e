package memcachelock_test

import (
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memcachelock"
)

// A memcached forgets locks when it needs memory: use it where two holders at once only waste work.
func Example() {
	store, err := memcachelock.New("localhost:11211", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locks := dlock.New(store, nil)
	defer locks.Close()

	traits := locks.Traits()
	fmt.Println(traits.Store, traits.Fencing, traits.SurvivesRestart)
	// Output:
	// memcached clock-bound false
}
