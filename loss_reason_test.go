package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// A loss says why the last renewal failed, and of which lock: in the cause of the context, in the hook
// and in the log.
func TestLossNamesTheLastFailure(t *testing.T) {
	full := fmt.Errorf("%w: no space left on the device", driver.ErrMisconfigured)
	for name, test := range map[string]struct {
		failure error // nil if the store does not answer
		kind    error
		text    string
	}{
		"full disk": {full, dlock.ErrMisconfigured, "no space left"},
		"hangs":     {nil, dlock.ErrUnreachable, "no answer in time"},
		"closed":    {driver.ErrClosed, dlock.ErrLost, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				lost := make(chan error, 1)
				var log strings.Builder
				c := dlock.New(&failingRenewal{store, test.failure}, &dlock.Options{
					Hooks:  dlock.Hooks{Lost: func(e dlock.Event) { lost <- e.Err }},
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				})
				lease := mustLock(t, c, t.Context(), "x")
				<-lease.Context().Done()
				unlock := lease.Unlock(t.Context())
				if !errors.Is(unlock, dlock.ErrNotHeld) {
					t.Errorf("Unlock: %v; want ErrNotHeld", unlock)
				}
				for what, err := range map[string]error{"cause": context.Cause(lease.Context()), "hook": <-lost, "Unlock": unlock} {
					if !errors.Is(err, dlock.ErrLost) || !errors.Is(err, test.kind) || errors.Is(err, dlock.ErrClosed) ||
						!strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), `"x"`) {
						t.Errorf("%s: %v; want %q with %q, and the name", what, err, test.kind, test.text)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if _, last, _ := strings.Cut(log.String(), "lock lost"); !strings.Contains(last, test.text) {
					t.Errorf("the log: %s", log.String())
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// failingRenewal renews nothing.
type failingRenewal struct {
	*memlock.Store
	failure error // nil if it does not answer
}

func (s *failingRenewal) Renew(ctx context.Context, _ []driver.Grant) []error {
	if s.failure != nil {
		return []error{s.failure}
	}
	<-ctx.Done()
	return []error{ctx.Err()}
}
