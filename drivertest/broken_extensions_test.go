package drivertest_test

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes with names, lists, wake-ups and queues, one a store.

// renamed keeps locks under other names than it is asked for.
type renamed struct {
	*memlock.Store
	key func(name string) string
}

func (s renamed) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	name := req.Name
	req.Name = s.key(name)
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Name = name
	}
	grant.Name = name
	return grant, err
}

func (s renamed) Release(ctx context.Context, grant driver.Grant) error {
	grant.Name = s.key(grant.Name)
	return s.Store.Release(ctx, grant)
}

func (s renamed) Renew(ctx context.Context, grants []driver.Grant) []error {
	grants = slices.Clone(grants)
	for i := range grants {
		grants[i].Name = s.key(grants[i].Name)
	}
	return s.Store.Renew(ctx, grants)
}

// parents takes a name for a folder, so that "a" waits for "a/b".
type parents struct{ *memlock.Store }

func (s parents) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	for info, err := range s.List(ctx, req.Name+"/") {
		if err != nil {
			return driver.Grant{}, err
		}
		return driver.Grant{}, &driver.HeldError{Name: info.Name, Token: info.Token, Holder: info.Holder}
	}
	return s.Store.Acquire(ctx, req)
}

// listLike is select ... where name like prefix || '%', as SQLite does it.
type listLike struct{ *memlock.Store }

func (s listLike) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	pattern := regexp.QuoteMeta(prefix)
	pattern = strings.NewReplacer("%", ".*", "_", ".").Replace(pattern)
	like := regexp.MustCompile("(?is)^" + pattern)
	return func(yield func(driver.Info, error) bool) {
		for info, err := range s.Store.List(ctx, "") {
			if like.MatchString(info.Name) && !yield(info, err) {
				return
			}
		}
	}
}

type looksByPrefix struct{ *memlock.Store }

func (s looksByPrefix) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	for info, err := range s.List(ctx, name) {
		return info, err == nil, err
	}
	return driver.Info{}, false, nil
}

type listsExpired struct {
	*memlock.Store
	seen *shelf[driver.Info]
}

func (s listsExpired) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.seen.put(req.Name, driver.Info{Name: req.Name, Token: grant.Token, Holder: req.Holder, Remaining: req.TTL})
	}
	return grant, err
}

func (s listsExpired) Release(ctx context.Context, grant driver.Grant) error {
	err := s.Store.Release(ctx, grant)
	if err == nil {
		s.seen.put(grant.Name, driver.Info{})
	}
	return err
}

func (s listsExpired) List(_ context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		s.seen.mu.Lock()
		defer s.seen.mu.Unlock()
		for name, info := range s.seen.of {
			if info.Token != 0 && strings.HasPrefix(name, prefix) && !yield(info, nil) {
				return
			}
		}
	}
}

type breaksAny struct{ *memlock.Store }

func (s breaksAny) Break(ctx context.Context, name string, _ uint64) error {
	return remove(ctx, s.Store, name)
}

type claimsExpiry struct{ *memlock.Store }

func (s claimsExpiry) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.WatchesExpiry = true
	return traits
}

// claimsQueues says that a watch keeps a place, and does not keep it.
type claimsQueues struct{ *memlock.Store }

func (s claimsQueues) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Queues = true
	return traits
}

type neverWakes struct{ *memlock.Store }

func (neverWakes) Watch(context.Context, driver.Request, func()) (func(), error) {
	return func() {}, nil
}

// watchesLate subscribes in the background, as if the reply did not matter.
type watchesLate struct{ *memlock.Store }

func (s watchesLate) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	subscribed := make(chan func(), 1)
	go func() {
		stop := func() {}
		if pause(later) == nil {
			stop, _ = s.Store.Watch(context.WithoutCancel(ctx), req, wake)
		}
		subscribed <- stop
	}()
	return func() { cancel(); (<-subscribed)() }, nil
}

type neverStops struct{ *memlock.Store }

func (s neverStops) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	_, err := s.Store.Watch(ctx, req, wake)
	return func() {}, err
}

type watchesContext struct{ *memlock.Store }

func (s watchesContext) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	stop, err := s.Store.Watch(ctx, req, wake)
	context.AfterFunc(ctx, func() {
		if stop != nil {
			stop()
		}
	})
	return stop, err
}

type leaks struct{ *memlock.Store }

func (s leaks) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	wakes := make(chan struct{}, 1)
	go func() {
		for range wakes {
			wake()
		}
	}()
	return s.Store.Watch(ctx, req, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
}

type unfair struct{ *memlock.Store }

func (s unfair) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Fair = false
	return s.Store.Acquire(ctx, req)
}

type lastFirst struct {
	*memlock.Store
	mu     sync.Mutex
	queues map[string][]driver.Owner
}

func (s *lastFirst) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if !req.Fair {
		return s.Store.Acquire(ctx, req)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queues[req.Name]
	var grant driver.Grant
	var err error = &driver.HeldError{Name: req.Name}
	if len(queue) == 0 || queue[len(queue)-1] == req.Owner {
		req.Fair = false
		grant, err = s.Store.Acquire(ctx, req)
	}
	if err == nil {
		s.drop(req.Name, req.Owner)
	} else if req.Queue && !slices.Contains(queue, req.Owner) {
		s.queues[req.Name] = append(queue, req.Owner)
	}
	return grant, err
}

func (s *lastFirst) Release(ctx context.Context, grant driver.Grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(grant.Name, grant.Owner)
	return s.Store.Release(ctx, grant)
}

func (s *lastFirst) drop(name string, owner driver.Owner) {
	s.queues[name] = slices.DeleteFunc(s.queues[name], func(o driver.Owner) bool { return o == owner })
}

// keepsQuitters gives up the lock, but not a place in the queue.
type keepsQuitters struct{ *memlock.Store }

func (s keepsQuitters) Release(ctx context.Context, grant driver.Grant) error {
	probe := driver.Grant{Name: grant.Name, Owner: grant.Owner, TTL: time.Hour}
	if errs := s.Renew(ctx, []driver.Grant{probe}); errs != nil {
		return errs[0]
	}
	return s.Store.Release(ctx, grant)
}

// keepsDead gives places that last as good as for ever.
type keepsDead struct{ *memlock.Store }

func (s keepsDead) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	queue := req.Queue
	req.Queue = false
	grant, err := s.Store.Acquire(ctx, req)
	if req.Fair && queue && errors.Is(err, driver.ErrHeld) {
		req.Queue, req.TTL = true, time.Hour
		return s.Store.Acquire(ctx, req)
	}
	return grant, err
}

type alwaysQueues struct{ *memlock.Store }

func (s alwaysQueues) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Queue = req.Fair
	return s.Store.Acquire(ctx, req)
}

// longPlaces keeps places for as long as the longest TTL that was asked for.
type longPlaces struct {
	*memlock.Store
	longest *shelf[time.Duration]
}

func (s longPlaces) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.longest.put(req.Name, max(s.longest.get(req.Name), req.TTL))
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok && held.Token == 0 { // a place refuses it
		held.Remaining = s.longest.get(req.Name)
	}
	return grant, err
}

// hidesQueue is from before waiters that are not fair were told of a queue.
type hidesQueue struct{ *memlock.Store }

func (s hidesQueue) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Queued = false
	}
	return grant, err
}

// holderQueues sends a fair holder that asks again to the end of the queue.
type holderQueues struct{ *memlock.Store }

func (s holderQueues) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	for info, err := range s.List(ctx, req.Name) {
		if err == nil && req.Fair && info.Name == req.Name && info.Waiters > 0 {
			return driver.Grant{}, &driver.HeldError{Name: req.Name, Token: info.Token, Holder: info.Holder}
		}
	}
	return s.Store.Acquire(ctx, req)
}
