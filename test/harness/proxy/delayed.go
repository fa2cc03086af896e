package proxy

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// delayedClauses is the number of clauses of the kit that may delay a network
	// at the same time, each through a proxy of its own.
	delayedClauses = 8
	// lateLimit is how long a server may take for requests that arrive late.
	lateLimit = 5 * time.Second
)

// Delayed returns drivertest.Config.Delayed for the server at target. open opens
// a store for another address of the server. Delayed starts all proxies at once,
// because the kit checks for goroutines that a store leaves behind.
func Delayed(t testing.TB, target string, open func(ctx context.Context, addr string) (driver.Store, error)) func(context.Context) (driver.Store, func() func(), error) {
	t.Helper()
	proxies := make([]*Proxy, delayedClauses)
	for i := range proxies {
		proxies[i] = Run(t, target)
	}
	var used atomic.Int64
	return func(ctx context.Context) (driver.Store, func() func(), error) {
		p := proxies[int(used.Add(1)-1)%delayedClauses]
		store, err := open(ctx, p.Addr())
		if err != nil {
			return nil, nil, err
		}
		return store, func() func() {
			deliver := p.Lag()
			return func() { deliver(lateLimit) }
		}, nil
	}
}
