//go:build race

package dlock_test

const defaultSeeds = 500 // the race detector makes a simulation ten times slower
