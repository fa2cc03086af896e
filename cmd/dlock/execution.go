package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// execution is one run of exec.
type execution struct {
	*app
	flags   execFlags
	name    string
	command []string
}

// ending is how a command ended.
type ending struct {
	status      int  // its exit status, 128+n if signal n ended it
	lost        bool // the lock was lost before it ended
	interrupted bool // by a signal that asks to stop
}

// stopSignals ask a program to end.
var stopSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

func (e *execution) run(ctx context.Context) error {
	if err := driver.CheckName(e.name); err != nil {
		return classify(err)
	}
	path, err := findCommand(e.command[0])
	if err != nil {
		return err
	}
	store, err := e.openStore(ctx)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = store.Close() }()
	client := dlock.New(store.Store, &dlock.Options{
		Holder: driver.Holder{Program: filepath.Base(e.command[0])},
	})
	// Close waits until a place in a queue has been given up. What could not be
	// given back expires, and hold has said so.
	defer func() { _ = client.Close() }()

	if err := e.refuseSelfWait(ctx, client, store); err != nil {
		return err
	}
	arrived := make(chan os.Signal, 64)
	lease, err := e.acquire(ctx, client, arrived)
	if err != nil {
		return err
	}
	return e.hold(lease, path, store, arrived)
}

// acquire waits for the lock. A stop signal ends the waiting; later signals are
// left in arrived.
func (e *execution) acquire(ctx context.Context, client *dlock.Client, arrived chan os.Signal) (*dlock.Lease, error) {
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
			interrupt(interruptedError{signalNumber(s)})
			signal.Stop(arrived) // a second one ends dlock even if the store hangs
		case <-over:
		}
	})
	if e.flags.verbose || (isTerminal(e.stderr) && !e.flags.quiet) {
		background.Go(func() { e.announceWaiting(ctx, client, over) })
	}
	lease, err := client.Lock(ctx, e.name, e.options()...)
	close(over)
	background.Wait()

	if err != nil {
		signal.Stop(arrived) // Ctrl-C ends the cleaning up
	}
	switch {
	case ctx.Err() != nil:
		if err == nil { // the signal came just after the lock
			_ = lease.Unlock(context.WithoutCancel(ctx))
		}
		return nil, classify(context.Cause(ctx))
	case errors.Is(err, dlock.ErrHeld):
		return nil, e.notAcquired(describeConflict(err, e.flags))
	}
	return lease, classify(err)
}

func (e *execution) options() []dlock.Option {
	options := []dlock.Option{
		dlock.WithTTL(e.flags.ttl),
		dlock.WithMargin(divide(e.flags.ttl, e.flags.grace).margin),
		dlock.WithNote(e.flags.note),
	}
	if e.flags.fair {
		options = append(options, dlock.WithFair())
	}
	if e.flags.noWait || e.flags.limited {
		options = append(options, dlock.WithWait(e.flags.wait))
	}
	return options
}

// notAcquired ends dlock with the status that the user chose for it.
func (e *execution) notAcquired(reason string) error {
	if e.flags.quiet {
		return &statusError{status: e.flags.conflict} // an error even if the status is 0
	}
	return failf(e.flags.conflict, "%s", reason)
}

func describeConflict(err error, flags execFlags) string {
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

// noticeDelay keeps dlock quiet about short waits.
const noticeDelay = 300 * time.Millisecond

// announceWaiting says once who holds the lock, if it takes a while.
func (e *execution) announceWaiting(ctx context.Context, client *dlock.Client, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
		return
	case <-time.After(noticeDelay):
	}
	info, held, err := client.Find(ctx, e.name)
	select {
	case <-over:
		return
	default:
	}
	if err != nil || !held {
		e.say("waiting for %s", harmless(e.name))
		return
	}
	e.say("waiting for %s, held by %s since %s", harmless(e.name), harmlessHolder(info.Holder), sinceText(info.Since, time.Now()))
}

// hold runs the command under the lease and gives the lock back.
func (e *execution) hold(lease *dlock.Lease, path string, store *openStore, arrived chan os.Signal) error {
	acquired := time.Now()
	if e.flags.verbose {
		e.say("acquired %s, token %d", harmless(e.name), lease.Token())
	}
	command := &job{
		name:     e.name,
		path:     path,
		args:     e.command,
		env:      childEnvironment(os.Environ(), store.identity, e.name, lease.Token()),
		files:    []*os.File{e.stdin, e.stdout, e.stderr},
		patience: divide(e.flags.ttl, e.flags.grace),
		onLoss: func() {
			why := strings.TrimPrefix(explain(context.Cause(lease.Context())), "lock lost: ")
			e.say("lost %s, ending the command: %s", harmless(e.name), why)
		},
	}
	if lease.Context().Err() != nil {
		return failf(exitLost, "lost %s before the command could start", harmless(e.name))
	}
	end, startErr := command.run(lease, arrived)
	if startErr == nil && !end.lost && !end.interrupted {
		keep(lease.Context(), acquired.Add(e.flags.minHold), arrived)
	}
	err := lease.Unlock(context.Background())
	switch {
	case startErr != nil:
		return cannotStart(e.command[0], startErr)
	case end.lost:
		return exitWith(exitLost) // onLoss has said it
	case errors.Is(err, dlock.ErrNotHeld) || errors.Is(err, dlock.ErrLost):
		return failf(exitLost, "lost %s before the command ended, or just after; found out when releasing it", harmless(e.name))
	case err != nil:
		e.say("could not release %s, it frees itself within %v: %s", harmless(e.name), e.flags.ttl, explain(err))
	case e.flags.verbose:
		e.say("released %s", harmless(e.name))
	}
	return exitWith(end.status)
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
