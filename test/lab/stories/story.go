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
	"github.com/redis/go-redis/v9"
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
	vanishedTransaction, replicaWithoutRow, oppositeOrder, deadInQueue, fullServer, evictingServer, fullDisk, slowNetwork,
	silentPartition, oneWayPartition,
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
		return describe(kind, server, server.Addr(), query), nil
	}
}

// describe returns a server that listens at addr.
func describe(kind *servers.Kind, server *servers.Server, addr, query string) *stage.Server {
	url := func(addrs []string) string { return kind.URL(addrs[0]) + query }
	s := &stage.Server{URL: url, Addrs: []string{addr}, Stop: server.Stop, Any: server}
	if kind == servers.Redis {
		client := newRedis(addr)
		s.Held = func(ctx context.Context) (bool, error) {
			n, err := client.Exists(ctx, stage.LockName).Result()
			return n > 0, err
		}
		s.Stop = func() error { return errors.Join(client.Close(), server.Stop()) }
	}
	return s
}

func onRedis(cases ...Case) Place { return Place{"redis", run(servers.Redis, ""), cases} }

func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// turn lets a process lock, write and unlock. It is stuck if it does not get the lock.
func turn(p *stage.Process) {
	if p.Lock() {
		p.Deposit()
		p.Unlock()
	}
}

// serve lets a process that has begun to wait have its turn. It is stuck if it does not get the
// lock.
func serve(s *stage.Stage, p *stage.Process, granted func() bool) {
	if !granted() {
		s.Stuck(p.Name + " does not get the lock")
		return
	}
	p.Deposit()
	p.Unlock()
}

// retry lets a process lock whose library gives up when a server is not there. It is stuck if
// it does not get the lock.
func retry(s *stage.Stage, p *stage.Process) bool {
	for end := time.Now().Add(s.Patience); time.Now().Before(end); {
		if p.TryFor(5 * time.Second) {
			return true
		}
		s.Wait(100 * time.Millisecond)
	}
	s.Stuck(p.Name + " does not get the lock")
	return false
}

// writeBoth lets b, which has the lock, write, and then a, which may believe to have it.
func writeBoth(s *stage.Stage, a, b *stage.Process) {
	b.Deposit()
	s.Wait(100 * time.Millisecond) // what both believe is recorded
	if a.Holds() {
		a.WriteChecked()
	}
	b.Unlock()
}

// writeAfterPause lets a, whose lock b has got while it was paused, go on and write.
func writeAfterPause(s *stage.Stage, a, b *stage.Process) {
	b.Deposit()
	a.Resume()
	a.Write()
	s.Wait(s.TTL / 4)
	b.Deposit()
	b.Unlock()
}
