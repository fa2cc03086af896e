//go:build race

package redis

// slowdown: the race detector makes everything slower.
const slowdown = 2
