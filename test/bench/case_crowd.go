package main

import "context"

// crowd: 16 goroutines of one process want one lock and do nothing with it.
var crowd = kind{name: "crowd", rounds: 5, run: func(ctx context.Context, r round) (figures, error) {
	return load{goroutines: 16, name: func(int) string { return "bench/crowd" }, shared: new(room)}.measure(ctx, r)
}}
