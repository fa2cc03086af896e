package dlock

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Options configure a Client. The zero value of every field is a good default,
// and so is a nil *Options.
type Options struct {
	// TTL is how long a lock outlives its holder: the store frees a lock that was
	// not renewed for that long. Default 30 s.
	TTL time.Duration

	// RequestTimeout bounds every single call to the store, so that a server that
	// does not answer cannot block a caller for long. Locks and Diagnose are
	// bounded by their contexts only. Default 5 s.
	RequestTimeout time.Duration

	// Holder describes this client in lists of locks. Empty fields are
	// filled in from the operating system.
	Holder driver.Holder

	// Hooks observe what happens to the client's locks.
	Hooks Hooks

	// Logger logs failures in the background: renewals that fail, locks that are
	// lost. Nil logs nothing.
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultTTL            = 30 * time.Second
	DefaultRequestTimeout = 5 * time.Second
)

// Option changes one acquisition.
type Option func(*settings)

// settings are the result of the options of one call.
type settings struct {
	ttl       time.Duration
	margin    time.Duration // negative stands for the default
	wait      time.Duration // limit of the waiting; negative if there is none
	note      string        // of WithNote
	holder    driver.Holder
	mode      driver.Mode
	semaphore bool // WithLimit was given
	fixed     bool
	fair      bool
}

// waits reports whether the caller is willing to wait at all.
func (s *settings) waits() bool { return s.wait != 0 }

// mayShareGrant reports whether callers with s and other can have leases of one grant.
func (s *settings) mayShareGrant(other *settings) bool {
	return s.mode == other.mode && s.ttl == other.ttl && s.margin == other.margin && !s.fixed && !other.fixed
}

// WithTTL sets how long the lock outlives its holder. While the lease is held, it is
// renewed every third of the TTL.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl = ttl }
}

// WithFixedTTL makes the lock time out: it is never renewed, and the lease is lost ttl
// after the acquisition at the latest.
func WithFixedTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl, s.fixed = ttl, true }
}

// WithWait limits the waiting for another holder. After that time the error is a [*HeldError]. If a
// call to the store is unanswered and no holder is known, it wraps context.DeadlineExceeded, or
// [ErrUnreachable] if the store has not answered for a quarter of a second: see [Client.Lock]. Zero
// does not wait at all.
//
// What comes before the waiting does not count. The first attempt takes up to Options.RequestTimeout if
// the store does not answer; for shared callers this may be the attempt of another caller of the process.
// If this process has had the lock for its time slice, the call pauses before the attempt, so that other
// processes can have it. If limit is shorter than the pause, the pause lasts for a tenth of a second
// at most.
func WithWait(limit time.Duration) Option {
	return func(s *settings) { s.wait = max(0, limit) }
}

// WithFair asks for strict first come, first served among all callers that use
// WithFair for the name, on all machines. It costs an entry in the store for every
// waiter, instead of one for all waiters of a process. While fair callers wait, callers
// without WithFair queue with them, one for each process, so that no caller starves. They
// may take a lock that is free before a fair caller whose turn it is. The error is
// [ErrUnsupported] if the store has no fair locks.
func WithFair() Option {
	return func(s *settings) { s.fair = true }
}

// WithShared asks for a shared lock: a name has many shared holders, or one exclusive holder, that
// asked without WithShared. While an exclusive caller waits, new shared callers wait
// behind it. Shared callers of one process share one entry in the store, with the note of
// the first of them. The order of shared leases' tokens means nothing among them:
// several shared holders may write in any order. A caller that holds the
// name shared cannot lock it exclusively: the error wraps [ErrMode], at once. The error is
// [ErrUnsupported] if the store has no shared locks.
func WithShared() Option {
	return func(s *settings) { s.mode.Shared = true }
}

// WithLimit makes the name a semaphore: at most limit holders at a time, each with a permit
// that expires. A name that is in use with another limit, or as a lock, is refused at once:
// the error wraps [ErrMode]. The error is [ErrUnsupported] if the store has no semaphores. A
// caller may get the permit that another one of its process gives back: the store goes on
// showing the note of the first.
func WithLimit(limit int) Option {
	return func(s *settings) { s.mode.Limit, s.semaphore = limit, true }
}

// WithNote attaches a text to the lock, for lists of locks. The store sends it to every caller that
// it refuses: a note of more than [driver.MaxNoteBytes] bytes is an error, [ErrBadNote].
func WithNote(note string) Option {
	return func(s *settings) { s.note, s.holder.Note = note, cmp.Or(note, s.holder.Note) }
}

// WithMargin sets how long before the end of its TTL a lease that could not be
// renewed counts as lost: the time that the holder has to stop. The default, 1 % of
// the TTL plus 2 ms, only compensates for clocks that run at different speeds. The
// margin is at most a third of the TTL.
func WithMargin(margin time.Duration) Option {
	return func(s *settings) { s.margin = margin }
}

// Hooks are functions that the client calls when something happens to a lock. All of
// them are optional. Each lock that a call returns is reported by Acquired, and then by exactly one
// of Released and Lost; a re-entry is not reported. The client calls a hook in the goroutine in which it happens, for
// some hooks one that renews many leases. So a hook must return at once and must not
// call the client.
type Hooks struct {
	// Acquired: a lock was acquired. Event.Waited says how long the caller waited.
	Acquired func(Event)
	// Waited: a caller waited for another holder or another caller, and its waiting has
	// ended, with the lock or with Event.Err. Event.Waited says how long the caller waited.
	Waited func(Event)
	// Renewed: a renewal has ended. Event.Err is nil, or why its outcome is unknown.
	// In that case the client tries again.
	Renewed func(Event)
	// Lost: the lock of the lease was lost. Event.Err says why.
	Lost func(Event)
	// Released: Unlock or Close ended a lease whose loss was not known before. Event.Err says why
	// the release may have failed. If it wraps ErrLost, the store no longer had the lock; Lost is
	// not called then.
	Released func(Event)
}

// Event is the argument of a hook.
type Event struct {
	Name   string
	Token  uint64 // zero if there is none
	Waited time.Duration
	Err    error
}

// tellOfStart reports whether a hook is called before a call returns its lease.
func (h *Hooks) tellOfStart() bool { return h.Acquired != nil || h.Waited != nil }

func notify(hook func(Event), event Event) {
	if hook != nil {
		hook(event)
	}
}
