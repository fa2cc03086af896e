package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// acquisition is what exec and hold do until they have their locks.
type acquisition struct {
	*app
	flags   holdFlags
	names   []string // one or more, each once
	program string   // that others see as the holder; empty: dlock
	margin  time.Duration
	began   time.Time // when the limit of --wait began
}

// heldName is a name and the token with which it is held.
type heldName struct {
	name  string
	token uint64
}

// lease is what exec and hold need to know of a *dlock.Lease or *dlock.Leases.
type lease interface {
	Context() context.Context
	Remaining() time.Duration
	Unlock(ctx context.Context) error
}

// heldLocks are the locks of a command, or of a hold.
type heldLocks struct {
	lease
	locks    []heldName // in the order of the command line
	acquired time.Time
}

// stopSignals ask a program to end.
var stopSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// interruptLimit is how long dlock tries to leave nothing behind after a signal has
// ended the waiting. A store that does not answer in that time does not keep it.
const interruptLimit = time.Second

// withLocks opens the store, acquires the locks and calls use with them. Signals that
// arrive later than the locks are in arrived.
func (q *acquisition) withLocks(ctx context.Context, use func(held *heldLocks, store *openStore, arrived chan os.Signal) error) error {
	for _, name := range q.names {
		if err := driver.CheckName(name); err != nil {
			return classify(err)
		}
	}
	reach, cancel := q.withLimit(ctx)
	defer cancel()
	store, err := q.openStore(reach)
	if err != nil {
		return classify(err)
	}
	if q.flags.verbose || (isTerminal(q.stderr) && !q.flags.quiet) {
		q.say("the store is %s", q.secrets.clean(store.display))
	}
	client := dlock.New(store.Store, &dlock.Options{Holder: driver.Holder{Program: q.program}})
	arrived := make(chan os.Signal, 64)
	var held *heldLocks
	if err = q.refuseSelfWait(reach, client, store); err == nil {
		held, err = q.acquire(reach, client, arrived)
	}
	if err == nil {
		err = classify(use(held, store, arrived))
	}
	// Close waits until a place in a queue has been given up. What could not be
	// given back expires, and use has said so.
	closeSoon(err, client, store)
	return cannotUse(q.secrets.clean(store.display), err)
}

// withLimit bounds the connecting and the waiting by --wait.
func (q *acquisition) withLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	q.began = time.Now()
	if !q.flags.limited || q.flags.wait == 0 {
		return context.WithCancel(ctx)
	}
	limit := max(q.flags.wait, leastAnswerLimit)
	return context.WithTimeoutCause(ctx, limit+waitSlack, errNoAnswer(limit))
}

// acquire waits for the locks. A stop signal ends the waiting; later signals are
// left in arrived.
func (q *acquisition) acquire(ctx context.Context, client *dlock.Client, arrived chan os.Signal) (*heldLocks, error) {
	for _, s := range stopSignals {
		if !signal.Ignored(s) { // by nohup, for example
			signal.Notify(arrived, s)
		}
	}
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	over := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case s := <-arrived:
			interrupt(interruptedError{signalNumber(s), true})
			signal.Stop(arrived) // a second one ends dlock even if the store hangs
		case <-over:
		}
	})
	if !q.flags.quiet {
		asking, stop := context.WithCancel(ctx) // who holds the lock
		defer stop()
		background.Go(func() { q.announceWaiting(asking, client, over) })
		background.Go(func() {
			<-over
			stop()
		})
	}
	type outcome struct {
		held *heldLocks
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		held, err := q.lock(ctx, client)
		done <- outcome{held, err}
	}()
	var got outcome
	select {
	case got = <-done:
	case <-ctx.Done():
		select {
		case got = <-done:
		case <-time.After(interruptLimit):
			got.err = context.Cause(ctx) // what it still gets expires
		}
	}
	close(over)
	ended := make(chan struct{})
	go func() {
		background.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(interruptLimit): // the store does not answer who holds the lock
		}
	}

	if got.err != nil {
		signal.Stop(arrived) // Ctrl-C ends the cleaning up
	}
	var interrupted interruptedError
	switch {
	case errors.As(context.Cause(ctx), &interrupted):
		if got.err == nil { // the signal came just after the lock
			_ = got.held.Unlock(context.WithoutCancel(ctx))
		}
		return nil, interrupted
	case errors.Is(got.err, dlock.ErrHeld):
		return nil, q.notAcquired(describeConflict(got.err, q.flags))
	case got.err != nil && isEnded(ctx): // no answer within --wait
		return nil, context.Cause(ctx)
	}
	return got.held, got.err
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
	options := []dlock.Option{
		dlock.WithTTL(q.flags.ttl),
		dlock.WithNote(q.flags.note),
	}
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

// notAcquired ends dlock with the status that the user chose for it.
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
	var held *dlock.HeldError
	if !errors.As(err, &held) {
		return text + err.Error()
	}
	return text + fmt.Sprintf("%s is held by %s", harmless(held.Name), harmlessHolder(held.Holder))
}

// How long dlock is quiet about waiting: at a terminal and with -v until it is not
// a short wait, elsewhere for long enough that a reader of the log wants to know.
const (
	noticeDelay      = 300 * time.Millisecond
	quietNoticeDelay = 5 * time.Second
)

// announceWaiting says once who holds the lock, if it takes a while.
func (q *acquisition) announceWaiting(ctx context.Context, client *dlock.Client, over <-chan struct{}) {
	delay := quietNoticeDelay
	if q.flags.verbose || isTerminal(q.stderr) {
		delay = noticeDelay
	}
	select {
	case <-over:
		return
	case <-ctx.Done():
		return
	case <-time.After(delay):
	}
	held := ""
	for _, name := range q.names {
		info, found, err := client.Find(ctx, name)
		if err == nil && found {
			held = fmt.Sprintf(", held by %s since %s", harmlessHolder(info.Holder), sinceText(info.Since, time.Now()))
			if len(q.names) > 1 {
				held = ": " + harmless(name) + " is" + strings.TrimPrefix(held, ",")
			}
			break
		}
	}
	select {
	case <-over:
	default:
		q.say("waiting for %s%s", q.title(), held)
	}
}

// title is what the locks are called in messages.
func (q *acquisition) title() string {
	var names []string
	for _, name := range q.names {
		names = append(names, harmless(name))
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return names[0]
}

// announceAcquired says with -v that the locks are held.
func (q *acquisition) announceAcquired(held *heldLocks) {
	if q.flags.verbose {
		for _, lock := range held.locks {
			q.say("acquired %s, token %d", harmless(lock.name), lock.token)
		}
	}
}

// lossReason says why the locks were lost.
func lossReason(held *heldLocks) string {
	return strings.TrimPrefix(context.Cause(held.Context()).Error(), dlock.ErrLost.Error()+": ")
}

// release gives the locks back, and says if it could not be done. lost says that the
// locks had been lost before.
func (q *acquisition) release(held *heldLocks) (lost bool) {
	err := held.Unlock(context.Background())
	switch {
	case errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrLost):
		return true
	case err != nil:
		q.say("could not release %s, it frees itself within %v: %v", q.title(), q.flags.ttl, err)
	case q.flags.verbose:
		q.say("released %s", q.title())
	}
	return false
}

// keep waits until the time is over, the lock is lost, or a stop signal arrives.
func keep(held context.Context, until time.Time, arrived <-chan os.Signal) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-held.Done():
			return
		case s := <-arrived:
			if isStopSignal(s) {
				return
			}
		}
	}
}

func isStopSignal(s os.Signal) bool { return slices.Contains(stopSignals, s) }

func signalNumber(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return int(number)
	}
	return 0
}
