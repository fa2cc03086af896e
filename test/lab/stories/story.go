// Package stories holds the experiments: how distributed locks fail, told in steps
// that are the same for every way to lock.
package stories

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/lab/stage"
	"github.com/dlock-go/dlock/test/lab/subject"
)

// Story is an experiment.
type Story struct {
	Number int
	Name   string // for the command line
	Title  string
	Tells  string // what happens, for a reader who has never heard of it
	TTL    time.Duration
	On     []Place
	Play   func(s *stage.Stage)
}

// Place is a store on which a story is played.
type Place struct {
	Store string
	Start func() (*stage.Server, error)
	Cases []Case
}

// Case is a subject, and the verdicts that it must have. A peer has none: whatever
// happens is reported.
type Case struct {
	Subject string
	Expect  []stage.Verdict
}

// All are the stories in order.
var All = []Story{
	twoStepExpiry, releaseAny, checkThenDelete, clientClocks, outlivesTTL, watchdogAfterPause,
	pauseBeforeWrite, lostAnswer, sentinelForgets, clusterForgets, sentinelWaits, memberForgets, delayedRestart, redlockClock,
	redlockSlow, sessionWhilePaused, ghostNode, herd, leaderKilled, deadWaiter, memcachedEvicts, rowForever, rowClientClock,
	vanishedTransaction, replicaWithoutRow, oppositeOrder, deadInQueue, fullServer, evictingServer, slowNetwork,
}

// ours is dlock, which must hold, or has the verdict that its documents announce.
func ours(store string, expect ...stage.Verdict) Case {
	if len(expect) == 0 {
		expect = []stage.Verdict{stage.Held}
	}
	return Case{subject.Dlock(store), expect}
}

// caught is a wrong way to lock, and the verdict in which its mistake shows.
func caught(name string, expect stage.Verdict) Case { return Case{name, []stage.Verdict{expect}} }

func peer(name string) Case { return Case{Subject: name} }

// run starts one server.
func run(kind *servers.Kind, query string, args ...string) func() (*stage.Server, error) {
	return func() (*stage.Server, error) {
		server, err := servers.Start(kind, args...)
		if err != nil {
			return nil, err
		}
		url := func(addrs []string) string { return kind.URL(addrs[0]) + query }
		s := &stage.Server{URL: url, Addrs: []string{server.Addr()}, Stop: server.Stop, Any: server}
		if kind == servers.Redis {
			client := newRedis(server.Addr())
			s.Held = func(ctx context.Context) (bool, error) {
				n, err := client.Exists(ctx, stage.LockName).Result()
				return n > 0, err
			}
			s.Stop = func() error { return errors.Join(client.Close(), server.Stop()) }
		}
		return s, nil
	}
}

func onRedis(cases ...Case) Place { return Place{"redis", run(servers.Redis, ""), cases} }
