package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
	"github.com/dlock-go/dlock/cmd/dlock/internal/tokens"
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
	t.table.Columns = []terminal.Column{
		{Title: "GUARD"},
		{Title: "PROCESSES", Right: true},
		{Title: "CALLS", Right: true},
		{Title: "FAILED", Right: true, Want: "0"},
		{Title: "FETCHES", Right: true, Want: "1"},
	}
	good := true
	bar := terminal.NewProgress(t.Stderr)
	for _, guard := range []string{"none", "dlock"} {
		task := userTask{File: filepath.Join(t.Folder, "token-"+guard), Calls: t.Calls, Locked: guard == "dlock", Store: t.Store}
		scenario := &tokens.Scenario{
			Processes: t.Processes,
			Start: func(ctx context.Context, service string) (*child.Process, error) {
				task.Service = service
				return startChild(ctx, userRole, task)
			},
			Progress: bar.Step,
		}
		bar.Begin(guard, t.Processes*t.Calls, "failed")
		r, err := scenario.Run(ctx)
		if err != nil {
			bar.End("")
			return err
		}
		bar.End(fmt.Sprintf("%d of %d calls failed, tokens fetched: %d", r.Failed, r.Calls, r.Fetches))
		if task.Locked {
			good = r.Failed == 0 && r.Fetches == 1
		}
		if err := t.add(drawTokens(guard, r),
			TokenJSON{guard, t.Processes, r.Calls, r.Failed, r.Fetches, float64(r.Elapsed.Milliseconds()) / 1000},
			guard, strconv.Itoa(t.Processes), strconv.Itoa(r.Calls), strconv.Itoa(r.Failed), strconv.Itoa(r.Fetches)); err != nil {
			return err
		}
	}
	err := t.finish("dlock demo token",
		fmt.Sprintf("%d processes send %d messages each to a service that wants an access token, of which only the last that was fetched is valid. A bar is the time in which a process looked for a token in the file that they share, or fetched one.",
			t.Processes, t.Calls),
		fmt.Sprintf("The locks are in %s.", t.Store.Name))
	if err == nil && !good {
		err = ResultError{errors.New("with a lock no call should have failed, and one token should have been fetched")}
	}
	return err
}

var tokenCaptions = map[string]string{
	"none":  "no lock",
	"dlock": "one lock for\nall processes",
}

// drawTokens returns the drawing of a result. Its time begins with the first visit. The
// curve falls with each call that was refused.
func drawTokens(guard string, r *tokens.Result) timeline.Run {
	run := newRun(guard, tokenCaptions[guard], len(r.Logs))
	run.Verdict, run.Bad = fmt.Sprintf("%d failed\n%d tokens fetched", r.Failed, r.Fetches), r.Failed > 0
	run.Stock, run.Of = r.Calls, "calls that were taken"
	begin := int64(math.MaxInt64)
	for _, log := range r.Logs {
		for _, visit := range log.Visits {
			begin = min(begin, visit.From)
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - begin) }
	for lane, log := range r.Logs {
		for _, visit := range log.Visits {
			what := "found a token"
			if visit.Fetched {
				what = "fetched a token"
			}
			addVisit(&run, lane, since(visit.From), since(visit.To), what)
		}
		for _, at := range log.Failed {
			run.Sales = append(run.Sales, since(at))
		}
		run.Length = max(run.Length, since(log.Ended)) // after the last call
	}
	slices.Sort(run.Sales)
	return run
}

// userRole is the argv[0] of a process that needs a token.
const userRole = "dlock-demo-user"

// userTask is the task of such a process.
type userTask struct {
	Service string // URL
	File    string
	Calls   int
	Locked  bool
	Store   Store
}

// runUser is the program of such a process.
func runUser(parent *child.Parent) error {
	var task userTask
	if err := parent.Receive(&task); err != nil {
		return err
	}
	user := tokens.User{Service: task.Service, File: task.File, Calls: task.Calls}
	if task.Locked {
		client, closeAll, err := task.Store.client(parent.Context)
		if err != nil {
			return err
		}
		defer closeAll()
		user.Client = client
	}
	if err := parent.AwaitStep(true); err != nil {
		return err
	}
	if err := user.Work(parent.Context); err != nil {
		return err
	}
	return parent.Send(user.Log)
}
