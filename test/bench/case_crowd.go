package main

import "context"

// crowd lets 16 goroutines of one process contend for one lock, which they
// release at once.
var crowd = kind{name: "crowd", rounds: 5, run: func(ctx context.Context, r round) (figures, error) {
	return load{goroutines: 16, name: func(int) string { return "bench/crowd" }, shared: new(occupancy)}.measure(ctx, r)
}}
