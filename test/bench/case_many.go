package main

import (
	"context"
	"fmt"
)

// many: 64 goroutines, each with a lock of its own. What the locks of a busy
// process cost each other.
var many = kind{name: "many", rounds: 11, run: func(ctx context.Context, r round) (figures, error) {
	return load{goroutines: 64, name: func(i int) string { return fmt.Sprintf("bench/many/%d", i) }}.measure(ctx, r)
}}
