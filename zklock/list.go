package zklock

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		names, err := call(ctx, s, func(ctx context.Context) (names []string, err error) {
			err = s.persist(ctx, func() (err error) { names, err = s.names(prefix); return err })
			return names, explain("listing locks", err)
		})
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for len(names) > 0 {
			some := names[:min(len(names), together)]
			names = names[len(some):]
			infos, err := call(ctx, s, func(ctx context.Context) (infos []driver.Info, err error) {
				err = s.persist(ctx, func() (err error) { infos, err = s.describeAll(some); return err })
				return infos, explain("listing locks", err)
			})
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for i := range infos {
				if infos[i].Name != "" && !yield(infos[i], nil) {
					return
				}
			}
		}
	}
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	info, err := call(ctx, s, func(ctx context.Context) (info driver.Info, err error) {
		err = s.persist(ctx, func() (err error) {
			if err = s.confirm(); err == nil {
				info, err = s.describe(name)
			}
			return err
		})
		return info, explain("looking for a lock", err)
	})
	return info, info.Name != "", err
}

// names are those that have a container, as far as the leader knows.
func (s *Store) names(prefix string) ([]string, error) {
	if err := s.confirm(); err != nil {
		return nil, err
	}
	segments, _, err := s.conn.Children(s.rootPath())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, segment := range segments {
		if name, ok := unescape(segment, s.root == ""); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// describeAll asks for all at the same time.
func (s *Store) describeAll(names []string) ([]driver.Info, error) {
	infos, errs := make([]driver.Info, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { infos[i], errs[i] = s.describe(name) })
	}
	all.Wait()
	return infos, errors.Join(errs...)
}

// describe says who has a lock. The Info has no name if nobody has it.
func (s *Store) describe(name string) (driver.Info, error) {
	parent := s.parentOf(name)
	for {
		queue, err := s.queue(parent)
		if errors.Is(err, zk.ErrNoNode) || err == nil && len(queue) == 0 {
			return driver.Info{}, nil
		}
		if err != nil {
			return driver.Info{}, err
		}
		data, stat, err := s.conn.Get(parent + "/" + queue[0])
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue // the next one has it
		case err != nil:
			return driver.Info{}, err
		}
		about := decode(data)
		return driver.Info{
			Name:      name,
			Token:     uint64(stat.Czxid),
			Holder:    about.Holder,
			Since:     time.UnixMilli(stat.Ctime),
			Remaining: about.ttl(),
			Waiters:   len(queue) - 1,
		}, nil
	}
}
