package main

import (
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	durations := make([]time.Duration, 100)
	for i := range durations {
		durations[i] = time.Duration(100 - i) // 100 down to 1
	}
	for _, test := range []struct {
		p    float64
		want time.Duration
	}{{0, 1}, {50, 51}, {99, 100}, {100, 100}} {
		if got := percentile(durations, test.p); got != test.want {
			t.Errorf("percentile %v of 1 to 100 is %d, want %d", test.p, got, test.want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing is %v", got)
	}
}

func TestJainIndex(t *testing.T) {
	for _, test := range []struct {
		shares []uint64
		want   float64
	}{
		{[]uint64{5, 5, 5, 5}, 1},
		{[]uint64{8, 0, 0, 0}, 0.25},
		{[]uint64{0, 0}, 0},
	} {
		if got := jainIndex(test.shares); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("index of %v is %v, want %v", test.shares, got, test.want)
		}
	}
}

func TestMedianOfRounds(t *testing.T) {
	got := median([]figures{{pairsPerS: 30, p50: 1}, {pairsPerS: 10, p50: 2}, {pairsPerS: 20}})
	want := figures{pairsPerS: 20, p50: 1.5, lowestRate: 10, bestRate: 30}
	if len(got) != len(want) {
		t.Errorf("medians %v, want %v", got, want)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
}
