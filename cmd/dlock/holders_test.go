//go:build unix

package main

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// goneHolders is a store whose shared lock is released between Find and List.
type goneHolders struct{ *memlock.Store }

//nolint:unparam // driver.Finder has the error
func (goneHolders) Find(_ context.Context, name string) (driver.Info, bool, error) {
	return driver.Info{Name: name, Token: 7, Mode: driver.Mode{Shared: true}}, true, nil
}

func (goneHolders) List(context.Context, string) iter.Seq2[driver.Info, error] {
	return func(func(driver.Info, error) bool) {}
}

func TestLockThatBecameFreeHasNoHolders(t *testing.T) {
	client := dlock.New(goneHolders{memlock.New()}, nil)
	defer client.Close()
	if holders, err := holdersOf(t.Context(), client, "job"); err != nil || len(holders) != 0 {
		t.Errorf("the holders of a free lock are %v, %v", holders, err)
	}
}

// onlyBreaks is a store that can break locks and cannot list them.
type onlyBreaks struct {
	driver.Store
	driver.Breaker
}

func TestBreakDoesNotClaimThatALockIsFree(t *testing.T) {
	m := memlock.New()
	held := dlock.New(m, nil)
	defer held.Close()
	lease, err := held.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	client := dlock.New(onlyBreaks{m, m}, nil)
	defer client.Close()
	err = (&app{}).breakLock(t.Context(), client, "job", lease.Token()+m.Traits().TokenStep)
	if exitStatus(err) != exitNo || !strings.HasPrefix(err.Error(), "job is not held with token ") || strings.Contains(err.Error(), "free") {
		t.Errorf("break with a wrong token, of a lock that cannot be listed: %v", err)
	}
}

func TestBreakOfAShareThatIsGoneNamesTheOthers(t *testing.T) {
	m := memlock.New()
	client := dlock.New(staleShare{m}, nil)
	defer client.Close()
	if _, err := client.Lock(t.Context(), "job", dlock.WithShared()); err != nil {
		t.Fatal(err)
	}
	err := (&app{}).breakLock(t.Context(), client, "job", staleToken)
	if exitStatus(err) != exitNo || !strings.Contains(err.Error(), ": it is held with token ") {
		t.Errorf("break of one of two shares, which was just released: %v", err)
	}
}

const staleToken = 4711

// staleShare lists one more share than there is: its holder releases it before Break.
type staleShare struct{ *memlock.Store }

func (s staleShare) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix) {
			if !yield(info, err) {
				return
			}
		}
		yield(driver.Info{Name: prefix, Token: staleToken, Mode: driver.Mode{Shared: true}}, nil)
	}
}
