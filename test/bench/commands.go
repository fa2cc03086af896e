package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// runCommands runs a command that does nothing, alone and under a lock. It measures
// what a lock adds to the run of a command.
func runCommands(ctx context.Context, rounds []round) (all []figures, err error) {
	const fewest = 5
	taken := make([][]time.Duration, len(rounds))
	window := rounds[0].window * time.Duration(len(rounds))
	for n, start := 0, time.Now(); n <= fewest || time.Since(start) < window; n++ {
		for i := range rounds {
			at := (i + n) % len(rounds)
			d, err := rounds[at].execute(ctx)
			if err != nil {
				return nil, rounds[at].failed(err)
			}
			if n > 0 { // the first run reads the program from the disk, and creates the store's state
				taken[at] = append(taken[at], d)
			}
		}
	}
	var bare float64
	for i, r := range rounds {
		var sum time.Duration
		for _, d := range taken[i] {
			sum += d
		}
		f := figures{
			pairsPerS: float64(len(taken[i])) / sum.Seconds(),
			p50:       micros(percentile(taken[i], 50)),
			p99:       micros(percentile(taken[i], 99)),
		}
		if isFloor(r.subject.Name) {
			bare = f[p50]
		}
		all = append(all, f)
	}
	for _, f := range all {
		f[aboveBare] = (f[p50] - bare) / 1000
	}
	return all, nil
}

// execute returns how long one run of the subject's command takes.
func (r round) execute(ctx context.Context) (time.Duration, error) {
	cmd, err := r.subject.Command(ctx, &r.place)
	if err != nil {
		return 0, err
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, output.Bytes())
	}
	return time.Since(start), nil
}
