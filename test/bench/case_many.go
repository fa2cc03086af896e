package main

import (
	"context"
	"fmt"
	"time"
)

// many runs 64 goroutines, each with a lock of its own. It measures how much the
// locks of a busy process slow each other down.
var many = kind{name: "many", rounds: 7, interleaved: func(ctx context.Context, rounds []round) ([]figures, error) {
	return measureInterleaved(ctx, rounds, 100*time.Millisecond, func(r round) load {
		return load{goroutines: 64, name: func(i int) string { return fmt.Sprintf("bench/many/%s/%d", r.subject.Name, i) }}
	})
}}
