package memcached

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// pageItems is more than the items of a lock's size that fit into one of the server's pages, which have
// a megabyte.
const pageItems = 8000

// movePage makes the server move its oldest page, in which the items of the present locks are.
func movePage(t *testing.T, addr string) {
	t.Helper()
	ask := func(command, end string) string {
		t.Helper()
		text, err := converse(t.Context(), addr, command, end)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	classes := ask("stats items\r\n", "END")
	if strings.Count(classes, ":number ") != 1 {
		t.Fatalf("the locks are not of one size: %s", classes)
	}
	var class int
	if _, err := fmt.Sscanf(classes, "STAT items:%d:", &class); err != nil {
		t.Fatal(err)
	}
	var size int
	if _, err := fmt.Sscanf(ask("mg dlock:a s\r\n", ""), "HD s%d", &size); err != nil {
		t.Fatal(err)
	}
	var add, remove strings.Builder
	for i := range pageItems {
		fmt.Fprintf(&add, "ms fill%04x %d q\r\n%s\r\n", i, size, strings.Repeat("x", size))
		fmt.Fprintf(&remove, "md fill%04x q\r\n", i)
	}
	ask(add.String()+"mn\r\n", "MN")
	ask(remove.String()+"mn\r\n", "MN")
	if reply := ask(fmt.Sprintf("slabs reassign %d 0\r\n", class), ""); !strings.HasPrefix(reply, "OK") {
		t.Fatalf("slabs reassign: %s", reply)
	}
	await.Until(t, "the page is moved", func() bool { return stat(t, addr, "slabs_moved") == 1 })
	if n := stat(t, addr, "slab_reassign_rescues"); n == 0 {
		t.Fatal("the page had no locks")
	}
}

// TestMovedItemsAreTheSameLocks: a server before 1.6.24 gives the items of a page that it moves new numbers.
// The grants stay what they are.
func TestMovedItemsAreTheSameLocks(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"evicts": nil, "evicts nothing": {"-M"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := servers.Run(t, servers.Memcached, append(args, "-o", "slab_automove=0")...).Addr()
			store := openNow(t, addr)
			find := func(name string) (token uint64) {
				t.Helper()
				info, _, err := store.(driver.Finder).Find(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				return info.Token
			}
			owner := driver.NewOwner()
			ask := func(name string) driver.Grant {
				t.Helper()
				grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: owner, TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return grant
			}
			renewed, released, repeated, broken := ask("a"), ask("b"), ask("c"), ask("d")
			ended := ask("e")
			if err := store.(driver.Breaker).Break(t.Context(), ended.Name, ended.Token); err != nil {
				t.Fatal(err)
			}
			next := ask("e") // by the same owner
			movePage(t, addr)

			if err := renew(t.Context(), store, renewed); err != nil {
				t.Errorf("Renew: %v", err)
			}
			if token := find("a"); token != renewed.Token {
				t.Errorf("after a renewal Find shows the token %d; want %d", token, renewed.Token)
			}
			if err := release(t.Context(), store, renewed); err != nil {
				t.Errorf("Release after Renew: %v", err)
			}
			if err := release(t.Context(), store, released); err != nil {
				t.Errorf("Release: %v", err)
			}
			if again := ask("c"); again.Token < repeated.Token {
				t.Errorf("the owner asks again, and the token falls from %d to %d", repeated.Token, again.Token)
			}
			for _, grant := range []driver.Grant{repeated, broken} {
				if err := renew(t.Context(), store, grant); err != nil {
					t.Errorf("Renew of %s: %v", grant.Name, err)
				}
			}
			if err := store.(driver.Breaker).Break(t.Context(), broken.Name, find(broken.Name)); err != nil {
				t.Errorf("Break: %v", err)
			}
			if err := renew(t.Context(), store, ended); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew of an earlier grant of the owner: %v; want ErrNotHeld", err)
			}
			if err := release(t.Context(), store, ended); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of an earlier grant of the owner: %v; want ErrNotHeld", err)
			}
			if err := release(t.Context(), store, next); err != nil {
				t.Errorf("Release of the last grant of the owner: %v", err)
			}
		})
	}
}
