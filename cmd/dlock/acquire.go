package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
)

// acquisition is what exec and hold have in common: they acquire locks, use them, and
// release them.
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
	store    *openStore
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
	// interruptLimit bounds the cleaning up after a signal has ended the waiting, for a
	// store that does not answer.
	interruptLimit = time.Second
	// leastAnswerLimit is how long the store may take to answer if --wait is shorter, so
	// that a free lock can be acquired from a store that is far away.
	leastAnswerLimit = time.Second
	// waitSlack lets the library end a wait first, because its error says more.
	waitSlack = 100 * time.Millisecond
)

// withLocks opens the store, acquires the locks and calls use. Signals that arrive after
// the locks were acquired are in signals.
func (q *acquisition) withLocks(ctx context.Context, use func(held *heldLocks, signals chan os.Signal) error) error {
	for _, name := range q.names {
		if err := driver.CheckName(name); err != nil {
			return classify(err)
		}
	}
	limited, cancel := q.withLimit(ctx)
	defer cancel()
	store, err := q.openStore(limited)
	if err != nil {
		return classify(err)
	}
	if q.flags.verbose || (terminal.Is(q.stderr) && !q.flags.quiet) {
		q.say("the store is %s", store.URL)
	}
	client := dlock.New(store.Driver, &dlock.Options{Holder: driver.Holder{Program: q.program}})
	signals := make(chan os.Signal, 64)
	var held *heldLocks
	if err = q.refuseSelfWait(limited, client, store); err == nil {
		held, err = q.acquire(limited, client, signals)
	}
	if err == nil {
		held.store = store
		err = classify(use(held, signals))
	}
	// A lock that could not be released expires, and use has reported that.
	closeSoon(err, client, store.Store)
	return store.failed(err)
}

// withLimit bounds connecting and waiting by --wait.
func (q *acquisition) withLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	q.began = time.Now()
	if !q.flags.limited || q.flags.wait == 0 {
		return context.WithCancel(ctx)
	}
	limit := max(q.flags.wait, leastAnswerLimit)
	return context.WithTimeoutCause(ctx, limit+waitSlack, stores.ErrNoAnswer(limit))
}

// acquire blocks until the locks are acquired. A stop signal ends the waiting; later
// signals stay in signals.
func (q *acquisition) acquire(ctx context.Context, client *dlock.Client, signals chan os.Signal) (*heldLocks, error) {
	notifyStop(signals)
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case s := <-signals:
			interrupt(interruptedError{signalNumber(s), true})
			signal.Stop(signals) // a second signal ends dlock even if the store does not answer
		case <-waiting.Done():
		}
	})
	if !q.flags.quiet {
		background.Go(func() { q.announceWaiting(waiting, client) })
	}
	type outcome struct {
		held *heldLocks
		err  error
	}
	got, returned := await(ctx, func() outcome {
		held, err := q.lock(ctx, client)
		return outcome{held, err}
	})
	if !returned {
		got.err = context.Cause(ctx) // a lock that is still granted expires
	}
	stop()
	await(ctx, func() struct{} {
		background.Wait()
		return struct{}{}
	})
	if got.err != nil {
		signal.Stop(signals) // Ctrl-C ends the cleaning up
	}
	interrupted, isInterrupted := errors.AsType[interruptedError](context.Cause(ctx))
	switch {
	case isInterrupted:
		if got.err == nil { // the signal arrived just after the grant
			_ = got.held.Unlock(context.WithoutCancel(ctx))
		}
		return nil, interrupted
	case errors.Is(got.err, dlock.ErrHeld):
		return nil, q.notAcquired(describeConflict(got.err, q.flags))
	case got.err != nil && stores.Ended(ctx): // no answer within --wait
		return nil, fmt.Errorf("%w; if the store grants the lock after all, the lock expires within %v", context.Cause(ctx), q.flags.ttl)
	}
	return got.held, got.err
}

// notifyStop sends stop signals to a channel, except for those that are ignored, by nohup
// for example.
func notifyStop(to chan<- os.Signal) {
	for _, s := range supervise.StopSignals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// await calls f and blocks until it returns, but not longer than interruptLimit after ctx
// has ended. If f has not returned, it goes on, and the result is the zero value and false.
func await[T any](ctx context.Context, f func() T) (result T, returned bool) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	var limit <-chan time.Time
	ended := ctx.Done()
	for {
		select {
		case result = <-done:
			return result, true
		case <-ended:
			ended, limit = nil, time.After(interruptLimit)
		case <-limit:
			return result, false
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

func describeConflict(err error, flags holdFlags) string {
	text := ""
	if flags.limited && flags.wait > 0 {
		text = fmt.Sprintf("gave up after %v: ", flags.wait)
	}
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok {
		return text + err.Error()
	}
	return text + fmt.Sprintf("%s is held by %s", terminal.Quote(held.Name), held.Holder)
}

// The time after which dlock reports that it waits: short at a terminal and with -v, longer
// in a log.
const (
	noticeDelay    = 300 * time.Millisecond
	logNoticeDelay = 5 * time.Second
)

// announceWaiting reports once which process holds the lock, unless ctx ends before.
func (q *acquisition) announceWaiting(ctx context.Context, client *dlock.Client) {
	delay := logNoticeDelay
	if q.flags.verbose || terminal.Is(q.stderr) {
		delay = noticeDelay
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(delay):
	}
	held := ""
	for _, name := range q.names {
		info, found, err := client.Find(ctx, name)
		if err == nil && found {
			held = fmt.Sprintf("held by %s since %s", info.Holder, sinceText(info.Since, time.Now()))
			if len(q.names) > 1 {
				held = ": " + terminal.Quote(name) + " is " + held
			} else {
				held = ", " + held
			}
			break
		}
	}
	if ctx.Err() == nil {
		q.say("waiting for %s%s", q.title(), held)
	}
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

// announceAcquired reports the tokens with -v.
func (q *acquisition) announceAcquired(held *heldLocks) {
	if q.flags.verbose {
		for _, lock := range held.locks {
			q.say("acquired %s, token %d", terminal.Quote(lock.name), lock.token)
		}
	}
}

// lossReason returns why the locks were lost.
func lossReason(held *heldLocks) string {
	return held.store.Clean(strings.TrimPrefix(context.Cause(held.Context()).Error(), dlock.ErrLost.Error()+": "))
}

// release releases the locks, and reports a failure on stderr. It returns true if the
// locks had been lost before.
func (q *acquisition) release(held *heldLocks) (lost bool) {
	err := held.Unlock(context.Background())
	switch {
	case errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrLost):
		return true
	case err != nil:
		q.say("could not release %s, it frees itself within %v: %s", q.title(), q.flags.ttl, held.store.Clean(err.Error()))
	case q.flags.verbose:
		q.say("released %s", q.title())
	}
	return false
}

// keepUntil blocks until a time, the loss of the lock, or a stop signal.
func keepUntil(until time.Time, held context.Context, signals <-chan os.Signal) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-held.Done():
			return
		case s := <-signals:
			if supervise.IsStop(s) {
				return
			}
		}
	}
}

func signalNumber(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return int(number)
}
