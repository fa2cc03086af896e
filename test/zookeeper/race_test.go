//go:build race

package zookeeper

// slowdown: the race detector makes everything slower.
const slowdown = 2
