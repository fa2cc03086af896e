//go:build linux

package stories

import (
	"bytes"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// namesLock matches a request that names the lock of the experiment.
func namesLock(request []byte) bool { return bytes.Contains(request, []byte(stage.LockName)) }

// deletes matches a request to Redis that can delete the lock.
func deletes(request []byte) bool {
	lower := bytes.ToLower(request)
	return namesLock(request) && (bytes.Contains(lower, []byte("del\r")) || bytes.Contains(lower, []byte("\neval")))
}

var twoStepExpiry = Story{
	Number: 1, Name: "expiry-in-two-steps", TTL: time.Second,
	Title: "The expiry is set in a second step, and the process dies between the two",
	Tells: "Process A dies at the moment in which the server has executed its first command. If that command took the lock " +
		"without an expiry, the lock stays for ever, and B waits for ever.",
	On: []Place{onRedis(caught("redis/setnx-expire", stage.Stuck), caught("redis/no-expiry", stage.Stuck),
		peer("redis/redsync"), peer("redis/bsm"), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(a) // scripts are loaded and connections exist
		executed := a.Proxies[0].LoseReply(namesLock, false)
		a.StartLock(s.Patience)
		s.Await("the first command of A", executed)
		a.Kill()
		turn(b)
	},
}

var releaseAny = Story{
	Number: 2, Name: "release-without-owner", TTL: time.Second,
	Title: "A process releases a lock that is no longer its own",
	Tells: "A has done its work, and is paused before it unlocks, until its lock has expired and B has it. Then A unlocks. If that deletes the lock of B, C gets in while B still works.",
	On: []Place{onRedis(caught("redis/delete-any", stage.TwoHolders),
		peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"), peer("redis/redisson"), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b, c := s.Process("A"), s.Process("B"), s.Process("C")
		turn(b)
		a.Lock()
		a.Deposit()
		a.Finish()
		a.Pause()
		if b.Lock() {
			b.Read()
			a.Resume()
			a.Unlock()
			thirdBeside(s, b, c)
		}
	},
}

// thirdBeside lets c try to get the lock that b has.
func thirdBeside(s *stage.Stage, b, c *stage.Process) {
	wait := c.StartLock(s.TTL / 2)
	if wait() {
		c.Deposit()
		s.Wait(s.TTL / 5)
	}
	b.Write()
	b.Unlock()
}

var checkThenDelete = Story{
	Number: 3, Name: "check-then-delete", TTL: time.Second,
	Title: "The owner is checked in one step, and the lock deleted in the next",
	Tells: "A unlocks. The command that deletes is late: it arrives when the lock of A has expired and B has it. If the check was made before, the lock of B is gone.",
	On: []Place{onRedis(caught("redis/get-then-delete", stage.TwoHolders),
		peer("redis/redsync"), peer("redis/bsm"), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b, c := s.Process("A"), s.Process("B"), s.Process("C")
		turn(a)
		a.Lock()
		a.Deposit()
		var late *proxy.Conn
		held := a.Proxies[0].OnRequest(deletes, func(c *proxy.Conn) {
			late = c
			c.Hold()
		})
		unlocked := a.StartUnlock()
		s.Await("the command that deletes", held)
		s.Harm("the command of A that deletes is held up")
		if b.Lock() {
			b.Read()
			late.Deliver()
			s.Harm("the command of A arrives")
			thirdBeside(s, b, c)
		}
		unlocked()
	},
}

var clientClocks = Story{
	Number: 4, Name: "clocks-of-clients", TTL: 2 * time.Second,
	Title: "The expiry is a time of the clients' clocks, which differ",
	Tells: "The clock of B is an hour ahead of that of A. If B judges by its own clock whether the lock of A has expired, B takes a lock that A has. " +
		"dlock sends no time of a client.",
	On: []Place{onRedis(caught("redis/getset-clock", stage.TwoHolders), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.ProcessWithClock("B", time.Hour)
		turn(a)
		a.Lock()
		a.Read()
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		a.Write()
		a.Unlock()
	},
}

var outlivesTTL = Story{
	Number: 5, Name: "task-outlives-ttl", TTL: time.Second,
	Title: "The task takes longer than the lock lives",
	Tells: "A works for three times the time to live of its lock. Without a renewal the lock expires, and B gets in while A still works.",
	On: []Place{onRedis(caught("redis/no-watchdog", stage.TwoHolders),
		peer("redis/redsync"), peer("redis/bsm"), peer("redis/rueidislock"), peer("redis/redisson"), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		second := b.StartLock(s.Patience)
		s.Wait(3 * s.TTL)
		a.Write()
		a.Unlock()
		serve(s, b, second)
	},
}

var watchdogAfterPause = Story{
	Number: 6, Name: "watchdog-after-pause", TTL: time.Second,
	Title: "The watchdog of a paused process renews a lock that is no longer its own",
	Tells: "A is paused until its lock has expired and B has it. When A goes on, its watchdog renews. If the renewal does not look at the owner, it succeeds, and A believes in its lock again. Then a process dies, and its watchdog must die with it.",
	On: []Place{onRedis(caught("redis/careless-watchdog", stage.TwoHolders),
		peer("redis/rueidislock"), peer("redis/redisson"), ours("redis"))},
	Play: func(s *stage.Stage) {
		a, b, c := s.Process("A"), s.Process("B"), s.Process("C")
		a.Lock()
		a.Deposit()
		a.Pause()
		if b.Lock() {
			b.Read()
			a.Resume()
			s.Wait(s.TTL)
			b.Write()
			b.Kill()
		}
		turn(c)
	},
}

var lostAnswer = Story{
	Number: 8, Name: "lost-answer", TTL: 30 * time.Second,
	Title: "The server grants the lock, and its answer is lost",
	Tells: "The server has given the lock to A, and the connection breaks before A knows. A asks again. If its own lock looks like that of another process, A waits for itself.",
	On: []Place{onRedis(caught("redis/new-owner", stage.Stuck),
		peer("redis/redsync"), peer("redis/bsm"), ours("redis"))},
	Play: func(s *stage.Stage) {
		s.Patience = 8 * time.Second
		a := s.Process("A")
		turn(a)
		lost := a.Proxies[0].LoseReply(namesLock, true)
		first := a.StartLock(s.Patience)
		s.Await("the lost answer", lost)
		s.Harm("the answer to A is lost")
		if !first() && !a.TryFor(s.Patience) { // a library may leave it to its users to ask again
			s.Stuck("A waits for itself")
			return
		}
		a.Deposit()
		a.Unlock()
	},
}
