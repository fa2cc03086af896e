//go:build race

package sqlservers

// slowdown is how much slower the race detector makes everything.
const slowdown = 2
