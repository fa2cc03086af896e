package dlock

import (
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Options configure a Client. The zero value of every field is a good default,
// and so is a nil *Options.
type Options struct {
	// TTL is how long a lock outlives its holder: the store frees it when it
	// was not renewed for that long. Default 30 s.
	TTL time.Duration

	// RequestTimeout bounds every single call that acquires, renews, releases or
	// breaks, so that a server that does not answer cannot hold a caller for
	// long. Locks and Diagnose are bounded by their context. Default 5 s.
	RequestTimeout time.Duration

	// Holder describes this client to people who ask who has a lock. What is
	// empty is filled in from the operating system.
	Holder driver.Holder

	// Hooks observe what happens to the client's locks.
	Hooks Hooks

	// Logger receives what happens in the background and would otherwise go
	// unseen: renewals that fail, locks that are lost. Default: nothing.
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultTTL            = 30 * time.Second
	DefaultRequestTimeout = 5 * time.Second
)

// Option changes one acquisition.
type Option func(*settings)

// settings are what the options of one call add up to.
type settings struct {
	ttl     time.Duration
	margin  time.Duration
	fixed   bool
	fair    bool
	limited bool          // wait is a limit
	wait    time.Duration // how long to wait for the lock
	note    string
}

// waits reports whether the caller is willing to wait at all.
func (s *settings) waits() bool { return !s.limited || s.wait > 0 }

func (c *Client) settings(opts []Option) settings {
	s := settings{ttl: c.ttl, margin: -1}
	if len(opts) > 0 {
		s = s.with(opts)
	}
	return s
}

// with is not inlined, because options move the settings to the heap, which calls
// without options need not pay for.
//
//go:noinline
func (s settings) with(opts []Option) settings {
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// WithTTL sets how long the lock outlives its holder. While the lease is held
// it is renewed every third of that.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl = ttl }
}

// WithFixedTTL lets the lock time out: it is never renewed, and the lease is
// lost ttl after the acquisition at the latest, however busy its holder is.
func WithFixedTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl, s.fixed = ttl, true }
}

// WithWait limits the waiting. When the limit is over the error is a
// [*HeldError]. Zero does not wait at all.
func WithWait(limit time.Duration) Option {
	return func(s *settings) { s.limited, s.wait = true, limit }
}

// WithFair asks for strict first come, first served among everybody who asks
// for the name with WithFair, on all machines. It costs an entry in the store
// for every waiter, where otherwise one stands for all waiters of a process.
// Those who ask without it do not queue, so that mixing both on one name is
// fair to nobody. The error is [ErrUnsupported] where the store cannot do it.
func WithFair() Option {
	return func(s *settings) { s.fair = true }
}

// WithNote attaches a text to the lock that people see when they list it.
func WithNote(note string) Option {
	return func(s *settings) { s.note = note }
}

// WithMargin sets how long before the end of its TTL a lease that could not be
// renewed counts as lost. It is the time that the holder has to stop. The
// default, 1 % of the TTL and 2 ms, only makes up for clocks that run at
// different speeds. A margin of more than a third of the TTL is cut to that.
func WithMargin(margin time.Duration) Option {
	return func(s *settings) { s.margin = margin }
}
