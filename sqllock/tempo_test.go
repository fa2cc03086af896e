package sqllock

import (
	"errors"
	"testing"
	"time"
)

// paced runs tempo for a while, with looks that take cost and see what seen
// says at that time, and returns how many there were.
func paced(tempo *tempo, lasts, cost time.Duration, seen func(at time.Duration) sight) (looks int) {
	start := time.Now()
	tempo.next = start
	for {
		now := tempo.due()
		if now.Sub(start) > lasts {
			return looks
		}
		looks++
		tempo.looked(now, now.Add(cost), seen(now.Sub(start)), nil)
	}
}

func still(time.Duration) sight { return sight{} }

func moving(time.Duration) sight { return sight{moving: true} }

func TestTempo(t *testing.T) {
	const second = time.Second
	told := func() bool { return true }
	for _, test := range []struct {
		what     string
		tempo    tempo
		cost     time.Duration
		seen     func(time.Duration) sight
		min, max int // looks in ten seconds
	}{
		{"nothing moves", tempo{gap: minTempo}, time.Millisecond, still, 95, 110},
		{"locks change hands", tempo{}, 0, moving, 4000, 5001},
		{"looks are slow", tempo{}, 50 * time.Millisecond, moving, 90, 101},
		{"the server tells", tempo{told: told}, time.Millisecond, still, 9, 11},
		{"the server tells what moves", tempo{told: told}, time.Millisecond, moving, 9, 11},
		{"one expires every 50 ms", tempo{told: told}, 0, func(time.Duration) sight { return sight{expiry: 50 * time.Millisecond} }, 190, 202},
	} {
		if n := paced(&test.tempo, 10*second, test.cost, test.seen); n < test.min || n > test.max {
			t.Errorf("%s: %d looks in ten seconds, want %d to %d", test.what, n, test.min, test.max)
		}
	}
}

func TestTempoFollowsWhatMoves(t *testing.T) {
	quiet := 5 * time.Second
	n := paced(&tempo{}, 6*time.Second, 0, func(at time.Duration) sight { return sight{moving: at > quiet} })
	if n < 450 {
		t.Errorf("%d looks, want about 500 in the second in which locks change hands", n)
	}
}

func TestTempoWhenAsked(t *testing.T) {
	start := time.Now()
	p := &tempo{told: func() bool { return true }}
	p.looked(start, start.Add(time.Millisecond), sight{}, nil)
	now := start.Add(100 * time.Millisecond)
	p.asked(now)
	if got := p.due(); !got.Equal(now) {
		t.Errorf("who asks waits %v for a look", got.Sub(now))
	}
	p.looked(now, now.Add(time.Millisecond), sight{}, nil)
	again := now.Add(time.Millisecond)
	p.asked(again)
	if got := p.due().Sub(again); got != minTempo {
		t.Errorf("a look follows another after %v, want %v", got, minTempo)
	}
}

// TestTempoAfterAnError: a server that tells may be the one that does not answer.
func TestTempoAfterAnError(t *testing.T) {
	start := time.Now()
	p := &tempo{told: func() bool { return true }}
	p.looked(start, start, sight{}, errors.New("no answer"))
	if got := p.due().Sub(start); got != maxTempo {
		t.Errorf("the next look is after %v, want %v", got, maxTempo)
	}
}
