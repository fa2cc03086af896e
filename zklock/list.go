package zklock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		names, err := read(ctx, s, "listing locks", func() ([]string, error) { return s.names(prefix) })
		for batch := range slices.Chunk(names, maxParallel) {
			var infos []driver.Info
			if infos, err = read(ctx, s, "listing locks", func() ([]driver.Info, error) { return s.describeAll(batch) }); err != nil {
				break
			}
			for i := range infos {
				if !yield(infos[i], nil) {
					return
				}
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	infos, err := read(ctx, s, "finding a lock", func() ([]driver.Info, error) {
		if err := s.confirmSession(); err != nil {
			return nil, err
		}
		return s.describe(name)
	})
	if err != nil || len(infos) == 0 {
		return driver.Info{}, false, err
	}
	return slices.MinFunc(infos, func(a, b driver.Info) int { return cmp.Compare(a.Token, b.Token) }), true, nil
}

// names returns the names that have a container, as far as the leader knows.
func (s *Store) names(prefix string) (names []string, err error) {
	if err := s.confirmSession(); err != nil {
		return nil, err
	}
	segments, _, err := s.conn.Children(s.rootPath())
	for _, segment := range segments {
		if name, ok := unescape(segment, s.root == ""); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// describeAll describes the holders of several locks at the same time.
func (s *Store) describeAll(names []string) ([]driver.Info, error) {
	infos, errs := make([][]driver.Info, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { infos[i], errs[i] = s.describe(name) })
	}
	all.Wait()
	return slices.Concat(infos...), errors.Join(errs...)
}

func (s *Store) describe(name string) (infos []driver.Info, err error) {
	container := s.containerPath(name)
	for {
		holders, waiters, err := s.holders(container)
		if err != nil {
			return nil, err
		}
		for _, holder := range holders {
			data, stat, err := s.conn.Get(container + "/" + holder.node)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				continue
			case err != nil:
				return nil, err
			}
			c := decode(data)
			infos = append(infos, driver.Info{
				Name:      name,
				Mode:      holder.mode,
				Token:     tokenOf(stat.Czxid),
				Holder:    c.Holder,
				Since:     time.UnixMilli(stat.Ctime),
				Remaining: c.ttl(),
				Waiters:   waiters,
			})
		}
		if len(infos) > 0 || len(holders) == 0 {
			return infos, nil
		}
		// All of them are gone: the next contenders have the lock.
	}
}

// holders returns the contenders that have a lock, and how many wait for it.
func (s *Store) holders(container string) (holders []contender, waiters int, err error) {
	children, _, err := s.conn.Children(container)
	if err != nil {
		return nil, 0, ignore(err, zk.ErrNoNode)
	}
	queue := queueOf(children)
	if n := countHolders(queue); n > 0 && queue[0].mode.Limit == 0 {
		return queue[:n], len(queue) - n, nil
	}
	if len(queue) == 0 && !slices.Contains(children, leasesParent) {
		return nil, 0, nil
	}
	return s.permitHolders(container, queue)
}
