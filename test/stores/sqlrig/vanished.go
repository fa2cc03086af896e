package sqlrig

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// VanishedClient shows that a machine that is not heard of any more, just when it has
// written and before it commits, keeps names for little longer than its TTL.
func (d *Database) VanishedClient(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, d.server.Addr())
	gone, other := d.Opened(t, At(raw, network.Addr())), d.Opened(t, raw)
	request := func(name string) driver.Request {
		req := Request(name)
		req.TTL = time.Second
		return req
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	defer func() {
		cancel()
		network.Reset()
		network.Deliver()
		if err := <-ended; err == nil {
			t.Error("what was never committed was granted")
		}
	}()
	silent := network.OnRequest(isCommit, func(*proxy.Conn) { network.Hold() })
	go func() {
		_, err := gone.AcquireAll(ctx, []driver.Request{request("x"), request("y")})
		ended <- err
	}()
	select {
	case <-silent:
	case <-time.After(limit):
		t.Fatal("nothing was committed")
	}
	const patience = 15 * time.Second // for the server to miss the client, which takes two
	attempt, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	start := time.Now()
	if _, err := other.Acquire(attempt, request("x")); err != nil {
		t.Errorf("Acquire of what a machine that is gone has written and not committed: %v", err)
	}
	t.Logf("it was free after %v", time.Since(start))
}
