package memcachelock_test

import (
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memcachelock"
)

// What is at stake may be done twice now and then: the server forgets what it has no
// memory for.
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
