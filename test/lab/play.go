package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	var work sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, together)
	bad := 0
	for _, j := range jobs {
		for _, c := range j.Cases {
			i := len(results)
			results = append(results, nil)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				work.Wait()
				return nil, ctx.Err()
			}
			work.Go(func() {
				defer func() { <-slots }()
				r := play(ctx, j, c, seed)
				mu.Lock()
				defer mu.Unlock()
				results[i] = r
				if !r.OK() {
					bad++
				}
				fmt.Fprintln(os.Stderr, line(r))
			})
		}
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
		r.Err = errors.Join(errors.New(r.Err), err).Error()
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
