package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/detach"
)

// lockRequest is what the command line of exec or hold asks for.
type lockRequest struct {
	*app
	flags   holdFlags
	names   []string // one or more, without duplicates
	program string   // of the holder, as others see it; empty: dlock
	margin  time.Duration
	began   time.Time // when the limit of --wait began
}

type heldLocks struct {
	*dlock.Leases
	acquired time.Time
	store    *stores.Store
}

const (
	// leastAnswerLimit is how long the store may take to answer if --wait is shorter, so
	// that a free lock can be acquired from a store that is far away.
	leastAnswerLimit = time.Second
	// waitSlack lets the library end a wait first, because its error says more.
	waitSlack = 100 * time.Millisecond
	sayLimit  = time.Second
	// dlock reports after these times that it waits, at a terminal or with -v, and in a log.
	noticeDelay    = 300 * time.Millisecond
	logNoticeDelay = 5 * time.Second
)

// withLocks calls use with the locks, and with the signals that arrive from then on.
func (r *lockRequest) withLocks(ctx context.Context, use func(held *heldLocks, signals chan os.Signal) error) error {
	for _, name := range r.names {
		if err := driver.CheckName(name); err != nil {
			return classify(err)
		}
	}
	// Otherwise a closed stdout or stderr would end dlock and leave the lock and the command without it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	r.began = time.Now()
	if r.flags.wait > 0 { // it bounds connecting and waiting
		limit := max(r.flags.wait, leastAnswerLimit)
		limited, cancel := context.WithTimeoutCause(ctx, max(limit, limit+waitSlack), stores.ErrNoAnswer(limit))
		defer cancel()
		ctx = limited
	}
	return r.withClient(ctx, r.program, func(client *dlock.Client, store *stores.Store) error {
		if r.flags.verbose || (terminal.Is(r.stderr) && !r.flags.quiet) {
			r.say("the store is %s", store.URL)
		}
		if err := r.refuseSelfWait(ctx, client, store); err != nil {
			return err
		}
		signals := make(chan os.Signal, 64)
		leases, err := r.acquire(ctx, client, signals)
		if err != nil {
			return err
		}
		held := &heldLocks{leases, time.Now(), store}
		for _, name := range r.names {
			r.report("acquired %s, token %d", terminal.Quote(name), held.Token(name))
		}
		return classify(use(held, signals))
	})
}

// acquire blocks until the locks are acquired, or a stop signal ends the waiting.
func (r *lockRequest) acquire(ctx context.Context, client *dlock.Client, signals chan os.Signal) (*dlock.Leases, error) {
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	notifyStop(signals)
	var leases *dlock.Leases
	outcome := make(chan error, 1)
	go func() {
		outcome <- stores.RetryIfSlow(ctx, func() (err error) {
			leases, err = client.LockAll(ctx, r.names, r.options()...)
			return err
		})
	}()
	var holder chan string
	if !r.flags.quiet && !r.flags.noWait {
		holder = make(chan string, 1)
		go r.findHolder(ctx, client, holder)
	}
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case err := <-outcome:
			if err = r.explain(ctx, err); err != nil {
				signal.Stop(signals) // Ctrl-C ends the cleaning up
				return nil, err
			}
			return leases, nil
		case text := <-holder:
			r.say("waiting for %s%s", r.title(), text)
		case s := <-signals:
			signal.Stop(signals) // a second signal ends dlock even if the store does not answer
			interrupt(interruptedError{signal: s})
		case <-ended:
			ended, holder, late = nil, nil, time.After(unansweredLimit)
		case <-late: // a lock that is still granted expires
			return nil, r.explain(ctx, context.Cause(ctx))
		}
	}
}

// explain returns the reason why the locks were not acquired; nil if they were.
func (r *lockRequest) explain(ctx context.Context, err error) error {
	interrupted, isInterrupted := errors.AsType[interruptedError](context.Cause(ctx))
	switch {
	case isInterrupted: // a lock that was granted just before is released with the client
		interrupted.answered = err == nil || errors.Is(err, dlock.ErrHeld)
		return interrupted
	case errors.Is(err, dlock.ErrHeld):
		return r.notAcquired(r.describeConflict(err))
	case err != nil && stores.Ended(ctx): // no answer within --wait
		err = context.Cause(ctx)
	case !errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w; if the store grants the lock after all, the lock expires within %v", err, r.flags.ttl)
}

// notifyStop sends stop signals to a channel, except for ignored ones, by nohup for example. Go
// reports only of HUP and INT that they were ignored when the process started.
func notifyStop(to chan<- os.Signal) {
	for _, s := range supervise.StopSignals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

func (r *lockRequest) options() []dlock.Option {
	options := []dlock.Option{dlock.WithTTL(r.flags.ttl), dlock.WithNote(r.flags.note)}
	if r.margin > 0 {
		options = append(options, dlock.WithMargin(r.margin))
	}
	if r.flags.fair {
		options = append(options, dlock.WithFair())
	}
	if r.flags.shared {
		options = append(options, dlock.WithShared())
	}
	if r.flags.permits > 0 {
		options = append(options, dlock.WithLimit(r.flags.permits))
	}
	if r.flags.noWait || r.flags.limited {
		options = append(options, dlock.WithWait(max(0, r.flags.wait-time.Since(r.began))))
	}
	return options
}

// notAcquired ends dlock with the status of -E.
func (r *lockRequest) notAcquired(reason string) error {
	r.conflict = true
	if r.flags.quiet {
		return exitWith(r.flags.conflict)
	}
	return failf(r.flags.conflict, "%s", reason)
}

func (r *lockRequest) describeConflict(err error) string {
	text := ""
	if r.flags.wait > 0 {
		text = fmt.Sprintf("gave up after %v: ", r.flags.wait)
	}
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok {
		return text + err.Error()
	}
	return text + terminal.Quote(held.Name) + " is " + heldText(held.Mode, held.Holder)
}

// heldText describes the holder of a lock, which may be one of several.
func heldText(mode driver.Mode, holder driver.Holder) string {
	switch {
	case mode.Limit > 0:
		return fmt.Sprintf("held %d times, which is its limit, once by %s", mode.Limit, holder)
	case mode.Shared:
		return fmt.Sprintf("held shared by %s", holder)
	case holder == driver.Holder{}: // the store does not know it
		return "held"
	}
	return fmt.Sprintf("held by %s", holder)
}

// findHolder sends, after a while, which process holds a lock, unless ctx ends before.
func (r *lockRequest) findHolder(ctx context.Context, client *dlock.Client, to chan<- string) {
	delay := logNoticeDelay
	if r.flags.verbose || terminal.Is(r.stderr) {
		delay = noticeDelay
	}
	if backoff.Sleep(ctx, delay) != nil {
		return
	}
	text := ""
	for _, name := range r.names {
		info, found, err := client.Find(ctx, name)
		if err != nil || !found {
			continue
		}
		text = ", " + heldText(info.Mode, info.Holder)
		if len(r.names) > 1 {
			text = ": " + terminal.Quote(name) + " is " + heldText(info.Mode, info.Holder)
		}
		if !info.Since.IsZero() {
			text += " since " + sinceText(info.Since, time.Now())
		}
		break
	}
	to <- text
}

func (r *lockRequest) title() string {
	var names []string
	for _, name := range r.names {
		names = append(names, terminal.Quote(name))
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return names[0]
}

// say is the method of app, but does not wait for a stderr that blocks: meanwhile the lock may be held.
func (r *lockRequest) say(format string, values ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), sayLimit)
	defer cancel()
	_, _ = detach.Call(ctx, detach.Go, func() error { r.app.say(format, values...); return nil })
}

func (r *lockRequest) report(format string, values ...any) {
	if r.flags.verbose {
		r.say(format, values...)
	}
}

func lossReason(held *heldLocks) string {
	return held.store.Clean(strings.TrimPrefix(context.Cause(held.Context()).Error(), dlock.ErrLost.Error()+": "))
}

// release releases the locks and reports whether they had been lost before. A stop signal
// leaves the release some time, and a second one none.
func (r *lockRequest) release(held *heldLocks, signals chan os.Signal) (lost bool) {
	released := make(chan error, 1)
	go func() { released <- held.Unlock(context.Background()) }()
	var late <-chan time.Time
	for !r.abandoned {
		select {
		case err := <-released:
			switch {
			case errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrLost):
				return true
			case err != nil:
				r.say("could not release %s at once, it expires within %v: %s", r.title(), r.flags.ttl, held.store.Clean(err.Error()))
				signal.Stop(signals) // closing the client goes on releasing: the next signal ends dlock
			default:
				r.report("released %s", r.title())
			}
			return false
		case s := <-signals:
			if supervise.IsStop(s) {
				r.abandoned = late != nil
				late = time.After(answeredLimit)
			}
		case <-late:
			r.abandoned = true
		}
	}
	r.say("interrupted while releasing %s, which the store did not confirm: it expires within %v", r.title(), r.flags.ttl)
	return false
}

// limit returns a channel that receives at the end of --max-hold, or nil if it was not given.
func (r *lockRequest) limit(held *heldLocks) <-chan time.Time {
	if r.flags.maxHold > 0 {
		return time.After(time.Until(held.acquired.Add(r.flags.maxHold)))
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
