package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func TestFindMatchesTheWholeName(t *testing.T) {
	t.Parallel()
	for kind, store := range map[string]driver.Store{"Lister": memlock.New(), "Finder": finderStore{memlock.New()}} {
		c := dlock.New(store, nil)
		longer, err := c.Lock(t.Context(), "xy")
		if err != nil {
			t.Fatal(err)
		}
		if info, held, err := c.Find(t.Context(), "x"); held || err != nil {
			t.Errorf("%s: x is free, found is %+v, %v, %v", kind, info, held, err)
		}
		if info, held, err := c.Find(t.Context(), "xy"); !held || err != nil || info.Name != "xy" || info.Token != longer.Token() {
			t.Errorf("%s: xy is held with token %d, found is %+v, %v, %v", kind, longer.Token(), info, held, err)
		}
		if _, _, err := c.Find(t.Context(), "a\nb"); !errors.Is(err, dlock.ErrBadName) {
			t.Errorf("%s: want ErrBadName, got: %v", kind, err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.Find(over, "xy"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: want the end of the context, got: %v", kind, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Find(t.Context(), "xy"); !errors.Is(err, dlock.ErrClosed) {
			t.Errorf("%s, after Close: want ErrClosed, got: %v", kind, err)
		}
	}
}

// finderStore can find one lock, and cannot list.
type finderStore struct{ *memlock.Store }

func (s finderStore) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	if ctx.Err() != nil {
		return driver.Info{}, false, context.Cause(ctx)
	}
	for info := range s.Store.List(ctx, name) {
		if info.Name == name {
			return info, true, nil
		}
	}
	return driver.Info{}, false, nil
}

func (finderStore) List(context.Context, string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, errors.New("too much to list")) }
}

func TestUnsupportedOperations(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(unfair{store}, nil)
		defer c.Close()
		if _, err := c.Lock(t.Context(), "x", dlock.WithFair()); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Lock: %v; want ErrUnsupported", err)
		}
		bare := dlock.New(bareStore{store}, nil)
		defer bare.Close()
		if err := bare.Break(t.Context(), "x", 1); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Break: %v; want ErrUnsupported", err)
		}
		if _, err := bare.Diagnose(t.Context()); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Diagnose: %v; want ErrUnsupported", err)
		}
		if _, _, err := bare.Find(t.Context(), "x"); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Find: %v; want ErrUnsupported", err)
		}
		for _, err := range bare.Locks(t.Context(), "") {
			if !errors.Is(err, dlock.ErrUnsupported) {
				t.Errorf("Locks: %v; want ErrUnsupported", err)
			}
		}
	})
}

// unfair is a store that cannot do fair locks.
type unfair struct{ *memlock.Store }

func (s unfair) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Fair = false
	return traits
}

// deaf is a store that does not answer, and returns what ended its context.
type deaf struct{ *memlock.Store }

func (deaf) List(ctx context.Context, _ string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if yield(driver.Info{Name: "first"}, nil) {
			<-ctx.Done()
			yield(driver.Info{}, fmt.Errorf("list: %w", context.Cause(ctx)))
		}
	}
}

func (deaf) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (deaf) Find(ctx context.Context, _ string) (driver.Info, bool, error) {
	<-ctx.Done()
	return driver.Info{}, false, context.Cause(ctx)
}

func (deaf) Break(ctx context.Context, _ string, _ uint64) error {
	<-ctx.Done()
	return os.ErrDeadlineExceeded // of a connection
}

// A call whose deadline passes while the store does not answer says that. A call that was
// cancelled, and one that never asked the store, does not.
func TestInspectionWithoutAnAnswerIsUnreachable(t *testing.T) {
	calls := map[string]func(*dlock.Client, context.Context, time.Duration) error{
		"Locks": func(c *dlock.Client, ctx context.Context, pause time.Duration) (last error) {
			for _, err := range c.Locks(ctx, "") {
				time.Sleep(pause)
				last = err
			}
			return last
		},
		"Diagnose": func(c *dlock.Client, ctx context.Context, pause time.Duration) error {
			time.Sleep(pause)
			_, err := c.Diagnose(ctx)
			return err
		},
		"Find": func(c *dlock.Client, ctx context.Context, pause time.Duration) error {
			time.Sleep(pause)
			_, _, err := c.Find(ctx, "x")
			return err
		},
		"Break": func(c *dlock.Client, ctx context.Context, pause time.Duration) error {
			time.Sleep(pause)
			return c.Break(ctx, "x", 1)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(deaf{store}, nil)
				defer c.Close()
				limited, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if err := call(c, limited, 0); !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("without an answer: %v; want ErrUnreachable and DeadlineExceeded", err)
				}
				late, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if err := call(c, late, 2*time.Second); errors.Is(err, dlock.ErrUnreachable) || err == nil {
					t.Errorf("a caller without time: %v; want no ErrUnreachable", err)
				}
				cancelled, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := call(c, cancelled, 0); errors.Is(err, dlock.ErrUnreachable) || err == nil {
					t.Errorf("a caller that was cancelled: %v; want no ErrUnreachable", err)
				}
			})
		})
	}
}

// slowList is a store that lists, cannot find, and does not answer.
type slowList struct{ remote }

func (s slowList) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return deaf{s.Store}.List(ctx, prefix)
}

// TestFindByListingIsBounded: RequestTimeout also bounds Find in a store that has to list, such as an SQL
// database.
func TestFindByListingIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(slowList{remote{store}}, nil)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if _, _, err := c.Find(ctx, "x"); !errors.Is(err, dlock.ErrUnreachable) || time.Since(began) != dlock.DefaultRequestTimeout {
			t.Errorf("Find in a store that does not answer: %v after %v; want ErrUnreachable after RequestTimeout", err, time.Since(began))
		}
	})
}
