//go:build !race

package dlock_test

const defaultSeeds = 10_000
