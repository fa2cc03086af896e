package redlock_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/redislock/redlock"
)

// An even number of servers tolerates no more failures than one less.
func ExampleOpen_even() {
	_, err := redlock.Open(context.Background(), "redlock://10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4", nil)
	fmt.Println(err)
	// Output:
	// bad URL: 4 servers tolerate no more failures than 3 servers do, and split their votes more often: leave one out, or add one
}
