package redis

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedlockLateAttemptLeavesNoLock: a member that receives an attempt after its release keeps no
// lock, whether the attempt won the vote, lost it, or its caller left.
func TestRedlockLateAttemptLeavesNoLock(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 5, servers.Redis, inMemory...)
	raw := clients(t, group.Addrs()...)
	for outcome, vote := range map[string]struct {
		late    []int // members that get the attempt late
		held    int   // how many members, from the first, another owner holds
		outcome func(error) bool
	}{
		"won":  {late: []int{4}, outcome: func(err error) bool { return err == nil }},
		"lost": {late: []int{4}, held: 3, outcome: func(err error) bool { return errors.Is(err, driver.ErrHeld) }},
		"left": {late: []int{2, 3, 4}, outcome: func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			name := "attempt-" + outcome
			links, addrs := make([]*proxy.Proxy, len(group)), make([]string, len(group))
			for i, server := range group {
				links[i] = proxy.Run(t, server.Addr())
				addrs[i] = links[i].Addr()
			}
			store, err := open(t.Context(), "redlock://"+strings.Join(addrs, ",")+"?read_timeout=3s&member_timeout=10s")
			must(t, err)
			t.Cleanup(func() { store.Close() })
			take := taker(t, store, "warm-"+outcome) // so that members know the scripts, and the store knows their clocks
			take()
			take()
			if vote.held > 0 {
				another, _ := openURL(t, "redlock://"+strings.Join(group.Addrs()[:vote.held], ","))
				grant := acquireOne(t, another, name)
				defer func() {
					if err := another.Release(t.Context(), grant); err != nil {
						t.Errorf("the other holder's lock: %v", err)
					}
				}()
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			deliver := make(chan struct{})
			deliverNow := sync.OnceFunc(func() { close(deliver) })
			defer deliverNow()
			var came, overtaken sync.WaitGroup
			var passed []<-chan struct{}
			for _, i := range vote.late {
				came.Add(1)
				overtaken.Add(1)
				// A request may also bring the release of what warmed the members up.
				about := func(request []byte) bool { return bytes.Contains(request, []byte(name)) }
				passed = append(passed, links[i].OnRequest(about, func(*proxy.Conn) {
					links[i].OnRequest(about, func(*proxy.Conn) { overtaken.Done() })
					came.Done()
					<-deliver
				}))
			}
			if len(vote.late) > 2 {
				go func() { came.Wait(); leave() }()
			}
			req := inMode(driver.Mode{}, name)
			grant, err := store.Acquire(ctx, req)
			if !vote.outcome(err) {
				t.Fatalf("Acquire: %v", err)
			}
			if err != nil {
				grant = driver.Grant{Name: req.Name, Owner: req.Owner}
			}
			eventually(t, "Release is answered", func() bool {
				err := store.Release(t.Context(), grant)
				return err == nil || errors.Is(err, driver.ErrNotHeld)
			})
			overtaken.Wait()
			answered := func() {
				for _, i := range vote.late {
					if !links[i].Settle(20 * time.Second) {
						t.Fatal("the server does not answer")
					}
				}
			}
			answered()
			deliverNow()
			for _, p := range passed {
				<-p
			}
			answered()
			eventually(t, "no member keeps the lock", func() bool {
				left := 0
				for _, server := range raw {
					left += int(server.Exists(t.Context(), name).Val())
				}
				return left == vote.held
			})
		})
	}
}
