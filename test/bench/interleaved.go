package main

import (
	"context"
	"errors"
	"time"
)

// measureInterleaved measures loads that are all open at once, in alternating
// slices. A disturbance of the machine that is longer than a slice affects all of
// them alike.
func measureInterleaved(ctx context.Context, rounds []round, slice time.Duration, loadOf func(round) load) (results []figures, err error) {
	var all []*running
	defer func() {
		for _, run := range all {
			err = errors.Join(err, run.client.Close())
		}
	}()
	for _, r := range rounds {
		run, err := loadOf(r).open(ctx, r)
		if err != nil {
			return nil, r.failed(err)
		}
		all = append(all, run)
		f, err := run.counted(ctx, r.window/4)
		if err != nil {
			return nil, r.failed(err)
		}
		results = append(results, f)
		run.tally = tally{shares: make([]uint64, len(run.workers))}
	}
	for n, left := 0, rounds[0].window; left > 0; n, left = n+1, left-slice {
		for i := range all {
			run := all[(i+n)%len(all)]
			if err := run.drive(ctx, min(slice, left)); err != nil {
				return nil, run.round.failed(err)
			}
		}
	}
	for i, run := range all {
		if err := run.summary(results[i]); err != nil {
			return nil, run.round.failed(err)
		}
	}
	return results, nil
}
