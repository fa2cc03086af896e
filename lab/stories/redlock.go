//go:build linux

package stories

import (
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// startRedlock starts five independent servers that keep nothing across a restart.
func startRedlock(kind *servers.Kind) func() (*stage.Server, error) {
	return func() (*stage.Server, error) { return stage.StartRedlock(5, kind, "--appendonly", "no") }
}

// lockWithThree lets a process lock while the last two of five servers are dead, so that it
// has just a majority. Then they come back.
func lockWithThree(s *stage.Stage, p *stage.Process) servers.Group {
	members := s.Server.Any.(servers.Group)
	s.Harm("servers 4 and 5 are down")
	s.Must(members[3].Kill())
	s.Must(members[4].Kill())
	p.Lock()
	p.Read()
	p.Check()
	s.Must(members[3].Restart())
	s.Must(members[4].Restart())
	s.Harm("servers 4 and 5 are back")
	return members
}

var memberForgets = Story{
	Number: 12, Name: "redlock-member-forgets", TTL: 10 * time.Second,
	Title: "Redlock: a server restarts and has forgotten its vote",
	Tells: "A has the votes of servers 1, 2 and 3. Server 3 crashes and comes back empty. Now 3, 4 and 5 are a majority for B. " +
		"dlock's Redlock does not prevent that unless the restart is delayed (see the next story), but the token of B is larger.",
	On: []Place{{"redlock", startRedlock(servers.Redis), []Case{peer("redlock/redsync"), caught("redlock/no-time-check", stage.TwoHolders),
		ours("redlock", stage.TwoFenced)}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		members := lockWithThree(s, a)
		s.Harm("server 3 restarts empty")
		s.Must(members[2].RestartEmpty())
		if b.TryFor(s.TTL / 2) {
			writeBoth(s, a, b)
		}
	},
}

var delayedRestart = Story{
	Number: 12, Name: "redlock-delayed-restart", TTL: 3 * time.Second,
	Title: "Redlock: a server that has forgotten its vote stays away until all locks have expired",
	Tells: "The same, but server 3 comes back only when everything that it may have forgotten has expired: by then A has renewed with another majority, or has lost the lock and knows it.",
	On:    []Place{{"redlock", startRedlock(servers.Redis), []Case{peer("redlock/redsync"), ours("redlock")}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		members := lockWithThree(s, a)
		s.Harm("server 3 dies")
		s.Must(members[2].Kill())
		second := b.StartLock(s.Patience)
		s.Wait(s.TTL + s.TTL/2)
		s.Harm("server 3 is back, empty")
		s.Must(members[2].RestartEmpty())
		s.Wait(s.TTL)
		a.Write()
		a.Unlock()
		serve(s, b, second)
	},
}

var redlockClock = Story{
	Number: 13, Name: "redlock-clock-jumps", TTL: 30 * time.Second,
	Title: "Redlock: the clocks of servers jump",
	Tells: "A has all votes. The clocks of three servers are set forward by an hour, and the votes there expire: a majority for B. dlock cannot prevent that on Redis, and says so; the token of B is larger.",
	On: []Place{{"redlock", startRedlock(servers.WithClock(servers.Redis)), []Case{peer("redlock/redsync"), caught("redlock/no-time-check", stage.TwoHolders),
		ours("redlock", stage.TwoFenced)}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		members := s.Server.Any.(servers.Group)
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("the clocks of three servers are set forward by an hour")
		for _, m := range members[:3] {
			s.Must(m.SetClock(time.Hour))
		}
		if b.TryFor(s.TTL / 2) {
			writeBoth(s, a, b)
		}
	},
}

var redlockSlow = Story{
	Number: 14, Name: "redlock-slow-votes", TTL: 2 * time.Second,
	Title: "Redlock: the votes come in so slowly that the first have expired before the last",
	Tells: "A has the votes of servers 1 and 2 at once. The network holds its request to server 3 for longer than a vote lives. Then A gets the third vote, and must not count the first two: B has the votes of 1, 2, 4 and 5.",
	On: []Place{{"redlock", startRedlock(servers.Redis), []Case{caught("redlock/no-time-check", stage.TwoHolders), peer("redlock/redsync"),
		ours("redlock")}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		for _, p := range a.Proxies[2:] {
			p.Hold()
		}
		s.Harm("the network holds the requests of A to servers 3, 4 and 5")
		first := a.StartLock(s.Patience)
		s.Wait(s.TTL + s.TTL/4)
		a.Proxies[2].Deliver()
		s.Harm("the request to server 3 arrives")
		s.Wait(s.TTL / 10)
		if retry(s, b) {
			b.Read()
			for _, p := range a.Proxies[3:] {
				p.Deliver()
			}
			s.Harm("the others arrive")
			s.Wait(s.TTL / 2)
			b.Write()
			b.Unlock()
		}
		first()
	},
}
