package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

const (
	// answerLimit is how long a store may take for its first answer.
	answerLimit = dlock.DefaultRequestTimeout
	// leastAnswerLimit is the same where --wait is shorter: it says how long to wait
	// for a lock, and a free one is to be had from a store that is far away too.
	leastAnswerLimit = time.Second
	// closeLimit is how long dlock tries to leave nothing behind in a store that does not
	// answer. What is left expires.
	closeLimit = 500 * time.Millisecond
	// waitSlack lets the library end a wait first, because it knows more.
	waitSlack = 100 * time.Millisecond
)

// errNoAnswer is the cause with which the limits of this file end a context.
func errNoAnswer(limit time.Duration) error {
	return fmt.Errorf("%w: no answer within %v", dlock.ErrUnreachable, limit)
}

// untilFirstAnswer bounds the first call to a store. An earlier limit of ctx stays.
func untilFirstAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerLimit, errNoAnswer(answerLimit))
}

// isEnded reports whether ctx is done, or is about to be: a call may notice the deadline
// of its context a moment before the context does. It waits for the end then.
func isEnded(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < waitSlack/2 {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// contact returns an error if the store does not answer. The calls that examine a whole
// store may take long, so that only the first call is bounded.
func contact(ctx context.Context, client *dlock.Client) error {
	bounded, cancel := untilFirstAnswer(ctx)
	defer cancel()
	_, _, err := client.Find(bounded, "dlock")
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case isEnded(bounded):
		return context.Cause(bounded)
	case errors.Is(err, dlock.ErrUnreachable):
		if inner := errors.Unwrap(err); errors.Is(inner, dlock.ErrUnreachable) {
			return inner // without the name, which is not the caller's
		}
		return err
	}
	return nil // whatever else it says is an answer
}

// closeSoon closes a store and its client. If the store did not answer, it does not wait
// for long.
func closeSoon(err error, client *dlock.Client, store *openStore) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = client.Close()
		_ = store.Close()
	}()
	var limit <-chan time.Time
	if interrupted, ok := errors.AsType[interruptedError](err); ok && interrupted.waiting {
		limit = time.After(interruptLimit)
	} else if errors.Is(err, dlock.ErrUnreachable) {
		limit = time.After(closeLimit)
	}
	select {
	case <-closed:
	case <-limit:
	}
}

// cannotUse gives an error of a store its exit status. If the store cannot be used, the
// error names it and is one line. An error that has a status already stays as it is.
func cannotUse(display string, err error) error {
	var own *statusError
	if err == nil || errors.As(err, &own) {
		return err
	}
	err = classify(err)
	status := exitStatus(err)
	if isSilent(err) || (status != exitUnavailable && status != exitDenied && status != exitMisconfigured) {
		return err
	}
	return &statusError{status, &lineError{"cannot use " + display + ": " + oneLine(err.Error()), err}}
}

// lineError is an error in other words.
type lineError struct {
	text string
	err  error
}

func (e *lineError) Error() string { return e.text }
func (e *lineError) Unwrap() error { return e.err }

// oneLine joins the lines of a text, of which some stores make one for each server.
func oneLine(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
