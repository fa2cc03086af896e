//go:build race

package redis

// slowdown lengthens time limits, because the race detector makes everything slower.
const slowdown = 2
