package dlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// find returns the tenure of name among t and the tenures around it, or nil. It does not return a tenure that was
// unlocked. It returns a lost one until it is unlocked, so that re-entering it fails. t may be nil.
func (t *tenure) find(name string) *tenure {
	for ; t != nil; t = t.outer {
		if t.grant.name() == name && !t.wasUnlocked() {
			return t
		}
	}
	return nil
}

func (t *tenure) wasUnlocked() bool {
	t.grant.mu.Lock()
	defer t.grant.mu.Unlock()
	cause := t.endCauseLocked()
	return cause != nil && (t.entries == 0 || !errors.Is(cause, ErrLost))
}

// reenter adds a lease to the tenure, which must not have ended: its grant may have been handed over. An
// exclusive tenure may be re-entered shared. The opposite is an error: the caller would wait for itself.
func (t *tenure) reenter(ctx context.Context, mode driver.Mode) (*Lease, error) {
	g := t.grant
	g.expireIfOverdue()
	g.mu.Lock()
	defer g.mu.Unlock()
	stored := storedMode(g)
	switch cause := t.endCauseLocked(); {
	case cause != nil:
		return nil, fmt.Errorf("re-entering %q: %w", g.name(), cause)
	case stored.Limit != mode.Limit:
		return nil, &driver.ModeError{Name: g.name(), Mode: stored}
	case stored.Shared && !mode.Shared:
		return nil, fmt.Errorf("%w: the caller holds %q shared, and has to unlock it before it locks it exclusively", ErrMode, g.name())
	}
	t.entries++
	return &Lease{tenure: t, reentry: &reentry{callerCtx: ctx}}, nil
}
