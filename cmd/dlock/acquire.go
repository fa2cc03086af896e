package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// acquisition is what exec and hold share: they acquire locks, use them, and release them.
type acquisition struct {
	*app
	flags   holdFlags
	names   []string // one or more, without duplicates
	program string   // of the holder, as others see it; empty: dlock
	margin  time.Duration
	began   time.Time // when the limit of --wait began
}

// heldLocks are the locks of an exec or a hold.
type heldLocks struct {
	lease
	locks    []heldName // in the order of the command line
	acquired time.Time
	store    *stores.Store
}

// lease is a *dlock.Lease or *dlock.Leases.
type lease interface {
	supervise.Lease
	Unlock(ctx context.Context) error
}

// heldName is a name and the token with which it is held.
type heldName struct {
	name  string
	token uint64
}

const (
	// leastAnswerLimit is how long the store may take to answer if --wait is shorter, so
	// that a free lock can be acquired from a store that is far away.
	leastAnswerLimit = time.Second
	// waitSlack lets the library end a wait first, because its error says more.
	waitSlack = 100 * time.Millisecond
	// dlock reports after these times that it waits, at a terminal or with -v, and in a log.
	noticeDelay    = 300 * time.Millisecond
	logNoticeDelay = 5 * time.Second
)

// withLocks calls use with the locks, and with the signals that arrive from then on.
func (q *acquisition) withLocks(ctx context.Context, use func(held *heldLocks, signals chan os.Signal) error) error {
	for _, name := range q.names {
		if err := driver.CheckName(name); err != nil {
			return classify(err)
		}
	}
	q.began = time.Now()
	if q.flags.wait > 0 { // it bounds connecting and waiting
		limit := max(q.flags.wait, leastAnswerLimit)
		limited, cancel := context.WithTimeoutCause(ctx, limit+waitSlack, stores.ErrNoAnswer(limit))
		defer cancel()
		ctx = limited
	}
	return q.withClient(ctx, q.program, func(client *dlock.Client, store *stores.Store) error {
		if q.flags.verbose || (terminal.Is(q.stderr) && !q.flags.quiet) {
			q.say("the store is %s", store.URL)
		}
		if err := q.refuseSelfWait(ctx, client, store); err != nil {
			return err
		}
		signals := make(chan os.Signal, 64)
		held, err := q.acquire(ctx, client, signals)
		if err != nil {
			return err
		}
		held.store = store
		for _, lock := range held.locks {
			q.report("acquired %s, token %d", terminal.Quote(lock.name), lock.token)
		}
		return classify(use(held, signals))
	})
}

// acquire blocks until the locks are acquired, or a stop signal ends the waiting.
func (q *acquisition) acquire(ctx context.Context, client *dlock.Client, signals chan os.Signal) (*heldLocks, error) {
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	notifyStop(signals)
	var held *heldLocks
	outcome := make(chan error, 1)
	go func() {
		outcome <- stores.Patiently(ctx, func() (err error) {
			held, err = q.lock(ctx, client)
			return err
		})
	}()
	var holder chan string
	if !q.flags.quiet && !q.flags.noWait {
		holder = make(chan string, 1)
		go q.findHolder(ctx, client, holder)
	}
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case err := <-outcome:
			if err = q.explain(ctx, err); err != nil {
				signal.Stop(signals) // Ctrl-C ends the cleaning up
				return nil, err
			}
			return held, nil
		case text := <-holder:
			q.say("waiting for %s%s", q.title(), text)
		case s := <-signals:
			signal.Stop(signals) // a second signal ends dlock even if the store does not answer
			interrupt(interruptedError{signal: s})
		case <-ended:
			ended, holder, late = nil, nil, time.After(silentLimit)
		case <-late: // a lock that is still granted expires
			return nil, q.explain(ctx, context.Cause(ctx))
		}
	}
}

// explain returns the reason why the locks were not acquired; nil if they were.
func (q *acquisition) explain(ctx context.Context, err error) error {
	interrupted, isInterrupted := errors.AsType[interruptedError](context.Cause(ctx))
	switch {
	case isInterrupted: // a lock that was granted just before is released with the client
		interrupted.answered = err == nil || errors.Is(err, dlock.ErrHeld)
		return interrupted
	case errors.Is(err, dlock.ErrHeld):
		return q.notAcquired(q.describeConflict(err))
	case err != nil && stores.Ended(ctx): // no answer within --wait
		err = context.Cause(ctx)
	case !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w; if the store grants the lock after all, the lock expires within %v", err, q.flags.ttl)
}

// notifyStop sends stop signals to a channel, except for ignored ones, by nohup for example.
func notifyStop(to chan<- os.Signal) {
	for _, s := range supervise.StopSignals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// lock acquires all names or none.
func (q *acquisition) lock(ctx context.Context, client *dlock.Client) (*heldLocks, error) {
	held := &heldLocks{}
	if len(q.names) == 1 {
		one, err := client.Lock(ctx, q.names[0], q.options()...)
		if err != nil {
			return nil, err
		}
		held.lease, held.locks = one, []heldName{{one.Name(), one.Token()}}
	} else {
		all, err := client.LockAll(ctx, q.names, q.options()...)
		if err != nil {
			return nil, err
		}
		held.lease = all
		for _, name := range q.names {
			held.locks = append(held.locks, heldName{name, all.Token(name)})
		}
	}
	held.acquired = time.Now()
	return held, nil
}

func (q *acquisition) options() []dlock.Option {
	options := []dlock.Option{dlock.WithTTL(q.flags.ttl), dlock.WithNote(q.flags.note)}
	if q.margin > 0 {
		options = append(options, dlock.WithMargin(q.margin))
	}
	if q.flags.fair {
		options = append(options, dlock.WithFair())
	}
	if q.flags.noWait || q.flags.limited {
		options = append(options, dlock.WithWait(max(0, q.flags.wait-time.Since(q.began))))
	}
	return options
}

// notAcquired ends dlock with the status of -E.
func (q *acquisition) notAcquired(reason string) error {
	if q.flags.quiet {
		return &statusError{status: q.flags.conflict} // an error even if the status is 0
	}
	return failf(q.flags.conflict, "%s", reason)
}

func (q *acquisition) describeConflict(err error) string {
	text := ""
	if q.flags.wait > 0 {
		text = fmt.Sprintf("gave up after %v: ", q.flags.wait)
	}
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok {
		return text + err.Error()
	}
	return text + fmt.Sprintf("%s is held by %s", terminal.Quote(held.Name), held.Holder)
}

// findHolder sends, after a while, which process holds a lock, unless ctx ends before.
func (q *acquisition) findHolder(ctx context.Context, client *dlock.Client, to chan<- string) {
	delay := logNoticeDelay
	if q.flags.verbose || terminal.Is(q.stderr) {
		delay = noticeDelay
	}
	if backoff.Sleep(ctx, delay) != nil {
		return
	}
	text := ""
	for _, name := range q.names {
		info, found, err := client.Find(ctx, name)
		if err != nil || !found {
			continue
		}
		text = ", held by " + info.Holder.String()
		if len(q.names) > 1 {
			text = ": " + terminal.Quote(name) + " is held by " + info.Holder.String()
		}
		if !info.Since.IsZero() {
			text += " since " + sinceText(info.Since, time.Now())
		}
		break
	}
	to <- text
}

// title returns the names as messages show them.
func (q *acquisition) title() string {
	var names []string
	for _, name := range q.names {
		names = append(names, terminal.Quote(name))
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return names[0]
}

// report writes a message with -v.
func (q *acquisition) report(format string, values ...any) {
	if q.flags.verbose {
		q.say(format, values...)
	}
}

// lossReason returns why the locks were lost.
func lossReason(held *heldLocks) string {
	return held.store.Clean(strings.TrimPrefix(context.Cause(held.Context()).Error(), dlock.ErrLost.Error()+": "))
}

// release releases the locks and reports whether they had been lost before. A stop signal
// leaves the release some time, and a second one none.
func (q *acquisition) release(held *heldLocks, signals <-chan os.Signal) (lost bool) {
	released := make(chan error, 1)
	go func() { released <- held.Unlock(context.Background()) }()
	var late <-chan time.Time
	for !q.abandoned {
		select {
		case err := <-released:
			switch {
			case errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrLost):
				return true
			case err != nil:
				q.say("could not release %s, it expires within %v: %s", q.title(), q.flags.ttl, held.store.Clean(err.Error()))
			default:
				q.report("released %s", q.title())
			}
			return false
		case s := <-signals:
			if supervise.IsStop(s) {
				q.abandoned = late != nil
				late = time.After(answeredLimit)
			}
		case <-late:
			q.abandoned = true
		}
	}
	q.say("interrupted while releasing %s, which the store did not confirm: it expires within %v", q.title(), q.flags.ttl)
	return false
}

// limit returns a channel that receives at the end of --max-hold, or nil if it was not given.
func (q *acquisition) limit(held *heldLocks) <-chan time.Time {
	if q.flags.maxHold > 0 {
		return time.After(time.Until(held.acquired.Add(q.flags.maxHold)))
	}
	return nil
}

// keepUntil blocks until a time, the loss of the lock, or a stop signal.
func keepUntil(held context.Context, until time.Time, signals <-chan os.Signal) {
	ctx, cancel := context.WithDeadline(held, until)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if supervise.IsStop(s) {
				return
			}
		}
	}
}
