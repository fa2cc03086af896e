package redis

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var (
	mixSeed = flag.Uint64("mixseed", 0, "the seed of TestHistory; 0 takes any")
	mixTime = flag.Duration("mixtime", 14*time.Second, "how long TestHistory runs")
)

// TestHistory injects random faults into worker processes, records what they did, and compares the
// record with what is promised.
func TestHistory(t *testing.T) {
	t.Parallel()
	seed := *mixSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := onServer(protocol, servers.Redis)(t)
		s.TTL = time.Second
		mix := faults.Mix{Seed: seed, Time: *mixTime, Workers: 4, Names: []string{"name-1", "name-2"}, Hold: s.TTL / 2}
		for _, violation := range mix.Run(t, s) {
			t.Error(violation)
		}
		if t.Failed() {
			t.Logf("again: go test -run TestHistory -mixseed %d", seed)
		}
	})
}

// TestHistoryFindsMistakes: the same check finds the mistakes of locks from articles, and accepts a
// correct one.
func TestHistoryFindsMistakes(t *testing.T) {
	t.Parallel()
	all := []string{"hold", "delete", "reset"}
	var together sync.WaitGroup
	defer together.Wait()
	for _, test := range []struct {
		mistake mistake
		mix     faults.Mix
	}{
		{none, faults.Mix{Disturbances: all, Hold: 3 * time.Second}},
		{releasesAnybodys, faults.Mix{Disturbances: []string{"hold"}, Hold: 3 * time.Second}},
		{recreatesOnRenewal, faults.Mix{Disturbances: []string{"delete"}, Hold: 6 * time.Second, Pause: 4 * time.Second}},
		{countsAlone, faults.Mix{Disturbances: []string{"reset"}, Hold: 100 * time.Millisecond}},
	} {
		together.Go(func() {
			t.Run(test.mistake.String(), func(t *testing.T) { findMistake(t, test.mistake, test.mix) })
		})
	}
}

// findMistake repeats a mix of faults until it finds a mistake.
func findMistake(t *testing.T, m mistake, mix faults.Mix) {
	t.Helper()
	s := onServer("plain", servers.Redis)(t)
	s.TTL = 500 * time.Millisecond
	mix.Time, mix.Workers, mix.Names = 5*time.Second, 3, []string{"name"}
	mix.Store = func(addr string) driver.Store { return openArticle(addr, m) }
	const rounds = 10
	for mix.Seed = 1; mix.Seed <= rounds; mix.Seed++ {
		found := mix.Run(t, s)
		switch {
		case m == none && len(found) == 0:
			return
		case m == none:
			t.Fatalf("found in a lock that is right: %q", found)
		case len(found) > 0:
			t.Logf("found: %s", found[0])
			return
		}
	}
	t.Errorf("nothing was found in %d rounds", rounds)
}
