package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/redis/go-redis/v9"
)

// TestTokenRisesAfterALostAnswer: the counter of a plain lock is ahead of the proposed token. The
// caller does not get the answer that says so: it is lost, or the caller leaves before. The owner asks
// again and gets a new token.
func TestTokenRisesAfterALostAnswer(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	for how, test := range map[string]struct {
		lose func(p *proxy.Proxy, owner string, leave func())
		want error
	}{
		"lost": {func(p *proxy.Proxy, owner string, _ func()) { p.LoseReply(mentions(owner), true) }, driver.ErrUnreachable},
		"abandoned": {func(p *proxy.Proxy, owner string, leave func()) {
			p.OnRequest(mentions(owner), func(*proxy.Conn) {
				p.Hold(proxy.Replies)
				go func() {
					p.Held(proxy.Replies, await.Limit)
					leave()
				}()
			})
		}, context.Canceled},
	} {
		t.Run(how, func(t *testing.T) {
			p := proxy.Run(t, server.Addr())
			store := newStore(t, "plain", &redis.Options{Addr: p.Addr()})
			take := taker(t, store, how)
			for range 5 { // the counter is there and the server's clock is known
				take()
			}
			ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
			must(t, raw.ZAdd(t.Context(), "dlock:token:{"+how+"}", redis.Z{Score: float64(ahead), Member: "t"}).Err())
			req := inMode(driver.Mode{}, how)
			ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
			defer cancel()
			test.lose(p, req.Owner.Hex(), cancel)
			if _, err := store.Acquire(ctx, req); !errors.Is(err, test.want) {
				t.Fatalf("Acquire without its answer: %v; want %v", err, test.want)
			}
			p.Deliver()
			grant := mustAcquire(t, store, req)
			if grant.Token <= ahead {
				t.Errorf("token %d; want more than the counter's %d", grant.Token, ahead)
			}
			if again := mustAcquire(t, store, req); again.Token != grant.Token {
				t.Errorf("asking again: token %d; want %d as before", again.Token, grant.Token)
			}
			mustRelease(t, store, grant)
			rises(t, &grant.Token, take(), "after that")
		})
	}
}
