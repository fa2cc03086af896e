package dlock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/memlock"
)

// TestHooksOfAPanic: after the hook Acquired of a lock, also if it panics, one of Released and Lost is called,
// and not without it.
func TestHooksOfAPanic(t *testing.T) {
	for _, hook := range []string{"Waited", "Acquired", "Acquired after a loss"} {
		for _, all := range []bool{false, true} {
			t.Run(hook, func(t *testing.T) {
				acquired, ended := 0, 0
				var c *Client
				var mu sync.Mutex
				n := 0
				c = New(memlock.New(), &Options{Hooks: Hooks{
					Waited: func(Event) {
						if hook == "Waited" {
							panic(hook)
						}
					},
					Acquired: func(e Event) {
						mu.Lock()
						acquired++
						n++
						m := n
						mu.Unlock()
						if m == 1 {
							return
						}
						if hook == "Acquired after a loss" {
							for _, h := range c.watchdog.Holds() {
								h.Observer.(*grant).lose(errRevoked)
							}
						}
						if hook != "Waited" {
							panic(hook)
						}
					},
					Lost:     func(Event) { mu.Lock(); defer mu.Unlock(); ended++ },
					Released: func(Event) { mu.Lock(); defer mu.Unlock(); ended++ },
				}})
				first, err := c.Lock(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(20*time.Millisecond, func() { _ = first.Unlock(context.Background()) })
				func() {
					defer func() { _ = recover() }()
					if all {
						_, err = c.LockAll(t.Context(), []string{"x", "y", "z"})
					} else {
						_, err = c.Lock(t.Context(), "x")
					}
				}()
				_ = c.Close()
				if acquired != ended {
					t.Errorf("all: %v, %d acquired, %d ended", all, acquired, ended)
				}
			})
		}
	}
}
