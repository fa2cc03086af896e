package main

import (
	"context"
	"time"
)

// solo runs one goroutine without contention.
var solo = kind{name: "solo", rounds: 7, interleaved: func(ctx context.Context, rounds []round) ([]figures, error) {
	return measureInterleaved(ctx, rounds, 25*time.Millisecond, func(r round) load {
		return load{goroutines: 1, name: func(int) string { return "bench/solo/" + r.subject.Name }}
	})
}}
