package dlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

func TestHooksReportEveryEvent(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		var story []string
		tell := func(what string) func(dlock.Event) {
			return func(e dlock.Event) {
				if e.Name != "x" {
					t.Errorf("%s of %q", what, e.Name)
				}
				story = append(story, fmt.Sprintf("%s waited=%v held=%v lost=%v token=%v", what, e.Waited.Round(time.Second),
					errors.Is(e.Err, dlock.ErrHeld), errors.Is(e.Err, dlock.ErrLost), e.Token > 0))
			}
		}
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{
			Acquired: tell("acquired"), Waited: tell("waited"), Renewed: tell("renewed"), Lost: tell("lost"), Released: tell("released"),
		}})
		defer c.Close()
		other := dlock.New(store, nil)
		defer other.Close()

		lease := mustLock(t, other, t.Context(), "x")
		_, _ = c.Lock(t.Context(), "x", dlock.WithWait(2*time.Second))
		time.AfterFunc(4*time.Second, func() { mustUnlock(t, lease) })
		mine := mustLock(t, c, t.Context(), "x")
		time.Sleep(15 * time.Second)
		mustUnlock(t, mine)
		mine = mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		<-mine.Context().Done()
		_ = mine.Unlock(t.Context())
		synctest.Wait() // the hook of the loss runs beside us

		want := []string{
			"waited waited=2s held=true lost=false token=false",
			"waited waited=4s held=false lost=false token=true",
			"acquired waited=4s held=false lost=false token=true",
			"renewed waited=0s held=false lost=false token=true",
			"released waited=0s held=false lost=false token=true",
			"acquired waited=0s held=false lost=false token=true",
			"lost waited=0s held=false lost=true token=true",
		}
		if !slices.Equal(story, want) {
			t.Errorf("the story is\n%s\nwant\n%s", strings.Join(story, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A lock whose hook panics is not renewed for ever.
func TestPanickingHookReleasesTheLock(t *testing.T) {
	for _, hook := range []string{"Acquired", "Waited"} {
		for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
			for _, fair := range []bool{false, true} { // fair sets are acquired in order
				bubble(t, func(t *testing.T, store *memlock.Store) {
					boom := func(e dlock.Event) {
						if e.Name == names[len(names)-1] {
							panic("boom")
						}
					}
					hooks := dlock.Hooks{Acquired: boom}
					if hook == "Waited" {
						hooks = dlock.Hooks{Waited: boom}
					}
					c, other := dlock.New(store, &dlock.Options{Hooks: hooks}), dlock.New(store, nil)
					defer c.Close()
					defer other.Close()
					lease := mustLock(t, other, t.Context(), names[len(names)-1])
					time.AfterFunc(time.Second, func() { mustUnlock(t, lease) })
					var opts []dlock.Option
					if fair {
						opts = append(opts, dlock.WithFair())
					}
					func() {
						defer func() {
							if recover() == nil {
								t.Errorf("%s of %v: the panic was swallowed", hook, names)
							}
						}()
						if len(names) == 1 {
							_, _ = c.Lock(t.Context(), names[0], opts...)
						} else {
							_, _ = c.LockAll(t.Context(), names, opts...)
						}
					}()
					for info := range store.List(t.Context(), "") {
						t.Errorf("%s of %v, fair %v: %q is still held", hook, names, fair, info.Name)
					}
				})
			}
		}
	}
}

// TestUnlockAfterAPanicReturns: an Unlock whose hook panics has ended, also for other callers of Unlock.
func TestUnlockAfterAPanicReturns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Released: func(dlock.Event) { panic("boom") }}})
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = lease.Unlock(t.Context())
		}()
		ended := make(chan error, 1)
		go func() { ended <- lease.Unlock(t.Context()) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the second Unlock waits for ever")
		}
	})
}
