package main

import "context"

// solo: one goroutine, no contention. What an uncontended lock costs.
var solo = kind{name: "solo", rounds: 21, run: func(ctx context.Context, r round) (figures, error) {
	return load{goroutines: 1, name: func(int) string { return "bench/solo" }}.measure(ctx, r)
}}
