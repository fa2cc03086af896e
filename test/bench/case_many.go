package main

import (
	"context"
	"fmt"
	"time"
)

// many: 64 goroutines, each with a lock of its own. What the locks of a busy
// process cost each other.
var many = kind{name: "many", rounds: 7, abreast: func(ctx context.Context, rounds []round) ([]figures, error) {
	return measureAbreast(ctx, rounds, 100*time.Millisecond, func(r round) load {
		return load{goroutines: 64, name: func(i int) string { return fmt.Sprintf("bench/many/%s/%d", r.subject.name, i) }}
	})
}}
