package dlock

import (
	"errors"
	"fmt"
)

// Renewed implements watchdog.Observer.
func (g *grant) Renewed(err error) {
	c, token := g.client, g.status().token
	if err != nil {
		c.logger.Warn("dlock: renewal failed, trying again", "name", g.name(), "token", token,
			"trusted_for", g.TrustDeadline()-c.clock.NoLaterThanNow(), "err", err)
	}
	notify(c.hooks.Renewed, Event{Name: g.name(), Token: token, Err: err})
}

// Lost implements watchdog.Observer. It ends the contexts at once. The next waiter of this
// process asks the store, which decides whether the lock is free.
func (g *grant) Lost(reason error) {
	if !g.end(fmt.Errorf("%w: %q: %w", ErrLost, g.name(), reason)) {
		return
	}
	if g.slot != nil {
		g.slot.Leave(true)
	}
}

// AfterLoss implements watchdog.Observer. It reports a loss once.
func (g *grant) AfterLoss() {
	c, err := g.client, g.status().cause
	if !errors.Is(err, ErrLost) {
		return
	}
	for i, t := range g.takeReports() {
		if i == 0 {
			c.logger.Warn("dlock: lock lost", "name", g.name(), "token", t.token, "reason", err)
		}
		t.reportEnd(c.hooks.Lost, err)
	}
}

func (g *grant) takeReports() []*tenure {
	g.mu.Lock()
	defer g.mu.Unlock()
	reports := g.reports
	g.reports = nil
	return reports
}

// lose declares the grant lost. It is for losses that the watchdog does not notice by itself.
func (g *grant) lose(reason error) {
	g.Lost(reason)
	g.client.watchdog.Forget(&g.Hold)
	g.AfterLoss()
}

// expireIfOverdue declares the grant lost after its trust deadline. The watchdog does
// the same, but the operating system may have kept it from running.
func (g *grant) expireIfOverdue() {
	if g.client.clock.Now() >= g.TrustDeadline() {
		g.lose(g.client.watchdog.Expired(&g.Hold))
	}
}

var errRevoked = errors.New("the store revoked the lock")

// newAttempt returns what the store calls when it revokes the grant of the next attempt. A late report
// of an earlier attempt changes nothing.
func (g *grant) newAttempt() (lost func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	attempt := g.revocation.attempt + 1
	g.revocation = revocation{attempt: attempt}
	return func() {
		g.mu.Lock()
		last := g.revocation.attempt == attempt
		held := g.tenures != nil
		if last {
			g.revocation.reported = true
		}
		g.mu.Unlock()
		if last && held {
			g.lose(errRevoked)
		}
	}
}
