//go:build !race

package sqlrig

// Slowdown is how much slower the race detector makes everything.
const Slowdown = 1
