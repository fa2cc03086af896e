package redislock

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// server is one that has keys.
type server struct {
	*sender
	addr string // empty if there is only one
}

// servers returns all of them.
func (s *Store) servers(ctx context.Context) ([]server, error) {
	if s.route.cluster == nil {
		return s.onlyServer(ctx)
	}
	masters, err := s.route.list(ctx, s.route.cluster.ForEachMaster)
	if err != nil {
		return nil, err
	}
	list := make([]server, 0, len(masters))
	for _, master := range masters {
		sender, err := s.route.to(master)
		if err != nil {
			return nil, err
		}
		list = append(list, server{sender, master.Options().Addr})
	}
	slices.SortFunc(list, func(a, b server) int { return cmp.Compare(a.addr, b.addr) })
	return list, nil
}

// onlyServer returns the one that the client is for. A client that hides several is
// of no use: it may ask any of them.
func (s *Store) onlyServer(ctx context.Context) ([]server, error) {
	if s.hidden() {
		switch masters, err := countMasters(ctx, s.route.all); {
		case err != nil:
			return nil, err
		case masters > 1:
			return nil, fmt.Errorf("%w: asking each of %d masters needs the *redis.ClusterClient itself, not a %T",
				driver.ErrUnsupported, masters, s.client)
		}
	}
	return []server{{sender: s.route.all}}, nil
}

// ask runs commands that only look. Unlike those of a lock they may keep nobody
// who wants to leave, not even for the time of the client's timeouts. Their own
// errors are in them.
func ask(ctx context.Context, to *sender, commands ...redis.Cmder) error {
	return leave(ctx, func() error { return to.do(ctx, commands...) })
}

// askOne runs one such command, and returns what it means that it failed.
func askOne(ctx context.Context, to *sender, cmd redis.Cmder) error {
	if err := ask(ctx, to, cmd); err != nil {
		return err
	}
	return explain(cmd.Err())
}

// leave waits for f until the context is done. Then f is left to itself, and what
// it writes must not be read.
func leave(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
