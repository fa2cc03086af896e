package dlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// The owner is a secret: no log, error or print-out shows it.
func TestOwnerIsNeverShown(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &spying{Store: inner}
		var out bytes.Buffer
		n := newNetwork(store)
		c := dlock.New(n, &dlock.Options{Logger: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithTTL(3*time.Second))
		_, err := c.TryLock(t.Context(), "x")
		n.setCut(true)
		time.Sleep(10 * time.Second)
		n.setCut(false)
		unlock := lease.Unlock(t.Context())
		synctest.Wait() // the logger is at rest
		_, _ = fmt.Fprintln(&out, err, unlock)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
			_, _ = fmt.Fprintf(&out, verb, lease)
			_, _ = fmt.Fprintf(&out, verb, store.req)
			_, _ = fmt.Fprintf(&out, verb, driver.Grant{Owner: store.req.Owner})
			_, _ = fmt.Fprintf(&out, verb, store.req.Owner)
		}
		text, err := json.Marshal(driver.Grant{Owner: store.req.Owner})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		if !strings.Contains(out.String(), "lost") {
			t.Error("the logger did not log the loss")
		}
		owner := store.req.Owner
		for _, secret := range []string{owner.Hex(), fmt.Sprint(owner[:]), fmt.Sprintf("%x", owner[:]), fmt.Sprintf("%#v", owner[:])} {
			if strings.Contains(out.String(), strings.Trim(secret, "[]")) {
				t.Errorf("the owner is shown:\n%s", out.String())
			}
		}
		time.Sleep(time.Second)
	})
}

// spying records the last request.
type spying struct {
	*memlock.Store
	req driver.Request
}

func (s *spying) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.req = req
	return s.Store.Acquire(ctx, req)
}
