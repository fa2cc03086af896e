package main

import (
	"context"
	"time"
)

// solo: one goroutine, no contention. What an uncontended lock costs.
var solo = kind{name: "solo", rounds: 7, abreast: func(ctx context.Context, rounds []round) ([]figures, error) {
	return measureAbreast(ctx, rounds, 25*time.Millisecond, func(r round) load {
		return load{goroutines: 1, name: func(int) string { return "bench/solo/" + r.subject.name }}
	})
}}
