package main

import "context"

// crowd lets 16 goroutines of one process contend for one lock, which they
// release at once.
var crowd = kind{name: "crowd", rounds: 5, run: func(ctx context.Context, r round) (figures, error) {
	return crowdOf(16).measure(ctx, r)
}}

// growCrowd is crowd with a growing number of goroutines.
var growCrowd = kind{name: "grow-crowd", rounds: 1, points: doubling(64), run: func(ctx context.Context, r round) (figures, error) {
	return crowdOf(r.at).measure(ctx, r)
}}

func crowdOf(goroutines int) load {
	return load{goroutines: goroutines, name: func(int) string { return "bench/crowd" }, shared: new(occupancy)}
}
