//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// redisPyEnv is the Python interpreter with redis-py.
const redisPyEnv = "DLOCK_TEST_REDISPY"

func TestRedisPy(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		sharePlain(t, func(t testing.TB) plain {
			server := servers.Run(t, servers.Redis, withoutDisk...)
			client := connect(t, server)
			return plain{client, newClient(t, newStore(t, client, redislock.Plain)), newRedisPy(t, server), shortTTL}
		})
	})
	t.Run("without a TTL", func(t *testing.T) {
		t.Parallel()
		redisPyWithoutTTL(t)
	})
}

// redisPyWithoutTTL checks that dlock respects a lock that never expires, and
// notices its release.
func redisPyWithoutTTL(t *testing.T) {
	server := servers.Run(t, servers.Redis)
	client := connect(t, server)
	c := newClient(t, newStore(t, client, redislock.Plain))
	theirs := peerLocks(t, newRedisPy(t, server), "x", 0)
	if ttl, err := client.PTTL(t.Context(), "x").Result(); err != nil || ttl != -1 {
		t.Fatalf("the lock of redis-py has the TTL %v (%v), want none", ttl, err)
	}
	mustRefuse(t, c, "x")
	later := lockLater(t, c, "x")
	select {
	case w := <-later:
		t.Fatalf("dlock did not wait for a lock that never expires: %v", w.err)
	case <-time.After(3 * time.Second):
	}
	peerUnlocks(t, theirs)
	ours := granted(t, later, 2*wakeLimit)
	report(t, "from a lock without TTL to dlock", []time.Duration{ours.at.Sub(theirs.began())}, wakeLimit)
	unlock(t, ours.lease)
}

// redisPyPeer is redis-py's Lock in a process of its own.
type redisPyPeer struct{ python *child.Threads }

func newRedisPy(t testing.TB, server *servers.Server) peer {
	t.Helper()
	python := os.Getenv(redisPyEnv)
	if python == "" {
		t.Fatalf("%s is not set: run test/interop/redispy/run, which installs redis-py", redisPyEnv)
	}
	return redisPyPeer{child.RunThreads(t, exec.Command(python, "redispy/agent.py", server.URL()))}
}

func (p redisPyPeer) acquire(t testing.TB, name string, ttl time.Duration, later bool) <-chan peerLock {
	t.Helper()
	thread := p.python.Thread(t)
	if later {
		thread.Send("lock", name, ttl.Milliseconds())
	} else {
		thread.Send("try", name, 0, ttl.Milliseconds())
	}
	done := make(chan peerLock, 1)
	go func() {
		select {
		case answer := <-thread.Answers():
			done <- redisPyLock(thread, name, answer)
		case <-t.Context().Done():
		}
	}()
	return done
}

func redisPyLock(thread *child.Thread, name, answer string) peerLock {
	if answer == "refused" {
		return peerLock{err: errRefused}
	}
	at, err := timeAfter("held ", answer)
	if err != nil {
		return peerLock{err: err}
	}
	var began time.Time
	return peerLock{
		at:    at,
		began: func() time.Time { return began },
		unlock: func() (err error) {
			thread.Send("unlock", name)
			began, err = timeAfter("unlocked ", strings.Join(thread.Receive(), " "))
			return err
		},
		extend: func(ttl time.Duration) error {
			thread.Send("extend", name, ttl.Milliseconds())
			if answer := thread.Receive(); answer[0] != "extended" {
				return fmt.Errorf("the other process answered %q", answer)
			}
			return nil
		},
	}
}

// timeAfter parses microseconds since 1970.
func timeAfter(prefix, answer string) (time.Time, error) {
	micros, err := strconv.ParseInt(strings.TrimPrefix(answer, prefix), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the other process answered %q, want %q and a time", answer, prefix)
	}
	return time.UnixMicro(micros), nil
}
