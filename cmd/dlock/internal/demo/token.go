package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
)

// Token is the demo in which processes fetch a token that makes the last one invalid.
type Token struct {
	Stage
	Processes int
	Calls     int // of each process
}

// Check rejects invalid options.
func (t *Token) Check() error {
	const maxCalls = 1000
	switch {
	case t.Processes < 1 || t.Processes > maxProcesses:
		return usagef("--processes %d is outside 1 to %d", t.Processes, maxProcesses)
	case t.Calls < 1 || t.Calls > maxCalls:
		return usagef("--calls %d is outside 1 to %d", t.Calls, maxCalls)
	}
	return nil
}

// TokenJSON is one run in the output of --json.
type TokenJSON struct {
	Guard     string  `json:"guard"`
	Processes int     `json:"processes"`
	Calls     int     `json:"calls"`
	Failed    int     `json:"failed"`
	Fetches   int     `json:"fetches"`
	Seconds   float64 `json:"seconds"`
}

// Run runs the demo without a lock and with one.
func (t *Token) Run(ctx context.Context) error {
	t.note("%d processes, %d calls each; the locks are in %s", t.Processes, t.Calls, t.Store.Name)
	t.table.Columns = columns("GUARD", "PROCESSES", "CALLS", "FAILED=0", "FETCHES=1")
	good := true
	bar := terminal.NewProgress(t.Stderr)
	for _, guard := range []Guard{None, Dlock} {
		bar.Begin(string(guard), t.Processes*t.Calls, "failed")
		r, err := t.call(ctx, guard, bar.Step)
		if err != nil {
			bar.End("")
			return err
		}
		bar.End(fmt.Sprintf("%d of %d calls failed, tokens fetched: %d", r.failed, r.calls, r.fetches))
		if guard == Dlock {
			good = r.failed == 0 && r.fetches == 1
		}
		if err := t.add(drawTokens(guard, r),
			TokenJSON{string(guard), t.Processes, r.calls, r.failed, r.fetches, float64(r.elapsed.Milliseconds()) / 1000},
			guard, t.Processes, r.calls, r.failed, r.fetches); err != nil {
			return err
		}
	}
	return t.finish(good, "with a lock no call should have failed, and one token should have been fetched", "dlock demo token",
		fmt.Sprintf("%d processes send %d messages each to a service that wants an access token, of which only the last that was fetched is valid. A bar is the time in which a process looked for a token in the file that they share, or fetched one.",
			t.Processes, t.Calls),
		fmt.Sprintf("The locks are in %s.", t.Store.Name))
}

// tokenResult is the outcome of one run.
type tokenResult struct {
	count
	elapsed time.Duration
	logs    []processLog // of each process
}

// call lets all processes begin at the same time. When it returns, no process runs any more.
func (t *Token) call(ctx context.Context, guard Guard, progress func(failed bool)) (r tokenResult, err error) {
	service, err := startService(ctx, progress)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	r.logs, err = t.runUsers(ctx, userTask{
		Service: "http://" + service.address, File: filepath.Join(t.Folder, "token-"+string(guard)), Calls: t.Calls, Locked: guard == Dlock, Store: t.Store,
	})
	r.elapsed = time.Since(begun)
	r.count = service.end()
	return r, err
}

func (t *Token) runUsers(ctx context.Context, task userTask) ([]processLog, error) {
	users, _, err := child.Start[bool](ctx, t.Processes, userRole, task)
	defer users.Wait()
	if err != nil {
		return nil, err
	}
	for _, user := range users {
		if err := user.Send(true); err != nil {
			return nil, err
		}
	}
	return child.ReceiveAll[processLog](users)
}

var tokenCaptions = map[Guard]string{
	None:  "no lock",
	Dlock: "one lock for\nall processes",
}

// drawTokens returns the drawing of a result, whose curve falls with each call that was refused.
func drawTokens(guard Guard, r tokenResult) timeline.Run {
	run := draw(guard, tokenCaptions[guard], r.logs)
	run.Verdict, run.Bad = fmt.Sprintf("%d failed\n%d tokens fetched", r.failed, r.fetches), r.failed > 0
	run.Stock, run.Of = r.calls, "calls that were taken"
	return run
}
