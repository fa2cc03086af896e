//go:build !race

package redis

const slowdown = 1
