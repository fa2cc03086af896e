package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/lab/stage"
	"github.com/dlock-go/dlock/test/lab/stories"
	"github.com/dlock-go/dlock/test/lab/subject"
)

// together is how many experiments run at a time: they mostly wait.
const together = 2

// playAll plays the stories and reports each verdict as it is known. The error says
// how many verdicts are not as they have to be.
func playAll(ctx context.Context, jobs []job, seed uint64) (results []*stage.Result, err error) {
	type part struct {
		job
		stories.Case
	}
	var parts []part
	for _, j := range jobs {
		for _, c := range j.Cases {
			if s, err := subject.Named(c.Subject); err == nil && s.Missing() != nil {
				fmt.Fprintf(os.Stderr, "    %-24s %-24s left out: %v\n", j.Name, c.Subject, s.Missing())
				continue
			}
			parts = append(parts, part{j, c})
		}
	}
	results = make([]*stage.Result, len(parts))
	var work sync.WaitGroup
	var mu sync.Mutex // guards bad and the output
	slots := make(chan struct{}, together)
	bad := 0
	for i, p := range parts {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			work.Wait()
			return nil, ctx.Err()
		}
		work.Go(func() {
			defer func() { <-slots }()
			r := play(ctx, p.job, p.Case, seed)
			results[i] = r
			if ctx.Err() != nil {
				return // it was interrupted
			}
			mu.Lock()
			defer mu.Unlock()
			if !r.OK() {
				bad++
			}
			fmt.Fprintln(os.Stderr, line(r))
		})
	}
	work.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if bad > 0 {
		err = fmt.Errorf("%d of %d verdicts are not as they have to be", bad, len(results))
	}
	return results, err
}

// play plays a story with one subject on a new server.
func play(ctx context.Context, j job, c stories.Case, seed uint64) *stage.Result {
	failed := func(err error) *stage.Result {
		return &stage.Result{Story: j.Name, Subject: c.Subject, Expected: c.Expect, Err: err.Error()}
	}
	s, err := subject.Named(c.Subject)
	if err != nil {
		return failed(err)
	}
	server, err := j.Start()
	if err != nil {
		return failed(err)
	}
	r := stage.Perform(ctx, s, server, j.TTL, seed, j.Play)
	r.Story, r.Expected = j.Name, c.Expect
	if err := server.Stop(); err != nil && ctx.Err() == nil {
		r.Err = strings.TrimSpace(r.Err + " " + err.Error())
	}
	return r
}

// line is a result in a line.
func line(r *stage.Result) string {
	mark, verdict := "ok ", string(r.Verdict)
	switch {
	case r.Err != "":
		mark, verdict = "BAD", "the experiment failed: "+r.Err
	case !r.OK():
		mark = "BAD"
		verdict += fmt.Sprintf(", must be %q", r.Expected)
	case r.Role == subject.Wrong:
		verdict += ": caught"
	case r.Role == subject.Peer:
		mark = "   "
	}
	return fmt.Sprintf("%s %-24s %-24s %-28s %v", mark, r.Story, r.Subject, verdict, r.Took.Round(100*time.Millisecond))
}
