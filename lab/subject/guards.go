package subject

import (
	"context"

	"github.com/dlock-go/dlock"
)

// guards are what keeps others out in the stories that are played on any store.
var guards = []Subject{
	{"none", Wrong, "no lock", openNone},
	{"local", Wrong, "a mutex in each process", openLocal},
	{"dlock", Ours, "a lock for all processes", openGuard(false)},
	{"fenced", Ours, "the same lock, and the row checks its token", openGuard(true)},
}

// openNone lets everybody in.
func openNone(context.Context, Config) (Locker, error) {
	return lockFunc(func(context.Context) (Held, error) {
		return held{unlock: func(context.Context) error { return nil }}, nil
	}), nil
}

// openLocal excludes the other goroutines of the process.
func openLocal(context.Context, Config) (Locker, error) {
	mutex := make(chan struct{}, 1)
	unlock := func(context.Context) error {
		<-mutex
		return nil
	}
	return lockFunc(func(ctx context.Context) (Held, error) {
		select {
		case mutex <- struct{}{}:
			return held{unlock: unlock}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}), nil
}

// openGuard opens dlock. Without fenced, its holders do not learn their tokens.
func openGuard(fenced bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		store, err := OpenStore(ctx, c.URL)
		if err != nil {
			return nil, err
		}
		traits := store.Traits()
		ttl := min(max(c.TTL, traits.MinTTL), traits.LongestTTL())
		opts := []dlock.Option{dlock.WithTTL(ttl)}
		if c.Fixed {
			opts = []dlock.Option{dlock.WithFixedTTL(ttl)}
		}
		client := dlock.New(store, &dlock.Options{TTL: ttl, RequestTimeout: max(ttl, busyTimeout)})
		return &dlockLocker{client, store, c.Name, opts, !fenced}, nil
	}
}
