//go:build race

package sqlrig

// Slowdown: the race detector makes everything slower.
const Slowdown = 2
