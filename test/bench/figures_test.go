package main

import (
	"maps"
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	durations := make([]time.Duration, 100)
	for i := range durations {
		durations[i] = time.Duration(100 - i) // 100 down to 1
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 51, 99: 100, 100: 100} {
		if got := percentile(durations, p); got != want {
			t.Errorf("percentile %v of 1 to 100 is %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing is %v", got)
	}
}

func TestJainIndex(t *testing.T) {
	for want, shares := range map[float64][]uint64{1: {5, 5, 5, 5}, 0.25: {8, 0, 0, 0}, 0: {0, 0}} {
		if got := jainIndex(shares); math.Abs(got-want) > 1e-9 {
			t.Errorf("index of %v is %v, want %v", shares, got, want)
		}
	}
}

func TestMedianOfRounds(t *testing.T) {
	got := median([]figures{{pairsPerS: 30, p50: 1}, {pairsPerS: 10, p50: 2}, {pairsPerS: 20}})
	if want := (figures{pairsPerS: 20, p50: 1.5, lowestRate: 10, bestRate: 30}); !maps.Equal(got, want) {
		t.Errorf("medians %v, want %v", got, want)
	}
}
