package zklock

import (
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
		names, err := query(ctx, s, "listing locks", func() ([]string, error) { return s.names(prefix) })
		for batch := range slices.Chunk(names, maxParallel) {
			var infos []driver.Info
			if infos, err = query(ctx, s, "listing locks", func() ([]driver.Info, error) { return s.describeAll(batch) }); err != nil {
				break
			}
			for i := range infos {
				if infos[i].Name != "" && !yield(infos[i], nil) {
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
	info, err := query(ctx, s, "finding a lock", func() (driver.Info, error) {
		if err := s.confirmSession(); err != nil {
			return driver.Info{}, err
		}
		return s.describe(name)
	})
	return info, info.Name != "", err
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

// describeAll describes several locks at the same time.
func (s *Store) describeAll(names []string) ([]driver.Info, error) {
	infos, errs := make([]driver.Info, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { infos[i], errs[i] = s.describe(name) })
	}
	all.Wait()
	return infos, errors.Join(errs...)
}

// describe describes a lock. The Info of a lock that is not held has no name.
func (s *Store) describe(name string) (driver.Info, error) {
	container := s.containerPath(name)
	for {
		queue, err := s.queue(container)
		if err != nil || len(queue) == 0 {
			return driver.Info{}, err
		}
		data, stat, err := s.conn.Get(container + "/" + queue[0])
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue // the next node has the lock
		case err != nil:
			return driver.Info{}, err
		}
		about := decode(data)
		return driver.Info{
			Name:      name,
			Token:     tokenOf(stat.Czxid),
			Holder:    about.Holder,
			Since:     time.UnixMilli(stat.Ctime),
			Remaining: about.ttl(),
			Waiters:   len(queue) - 1,
		}, nil
	}
}
