package main

import (
	"slices"
	"strings"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// growth are the curves of growth: cases that are measured at several points.
var growth = []kind{growCrowd, growProcesses, growReaders, growWaiters, growHeld}

// growthStores have curves of growth unless --only names other stores.
var growthStores = []string{"memory", "sqlite", "redis"}

// A point of a curve takes the pointShare-th part of the time of a case.
const pointShare = 3

// doubling returns 1, 2, 4 and so on up to last.
func doubling(last int) (points []int) {
	for n := 1; n <= last; n *= 2 {
		points = append(points, n)
	}
	return points
}

// powersOfTen returns 1, 10, 100 and so on up to last.
func powersOfTen(last int) (points []int) {
	for n := 1; n <= last; n *= 10 {
		points = append(points, n)
	}
	return points
}

// onCurve reports whether a subject has a line in the curves: the floor, dlock
// and other libraries, but no variants and no parts of dlock.
func onCurve(s subjects.Subject) bool {
	return s.Foreign == nil && !strings.Contains(s.Name, "/") && !slices.Contains([]string{"bare", "store"}, s.Name)
}
