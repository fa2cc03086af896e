//go:build linux

package stories

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

var memcachedEvicts = Story{
	Number: 20, Name: "memcached-evicts", TTL: 10 * time.Second,
	Title: "memcached runs out of memory and evicts the lock",
	Tells: "A has the lock. Other data fills the memory of the cache, which forgets the lock. B gets it while A believes to have it. " +
		"dlock cannot prevent that on memcached, and says so; A knows it at its next renewal, and the token of A is smaller than that of B.",
	On: []Place{{"memcached", run(servers.Memcached, "", "-m", "2"),
		[]Case{caught("memcached/add-delete", stage.TwoHolders), ours("memcached", stage.TwoFenced, stage.Refused)}}},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("other data fills the memory")
		s.Must(fillMemcached(s.Server.Addrs[0]))
		if b.TryFor(s.TTL / 4) {
			writeBoth(s, a, b)
		}
	},
}

// fillMemcached stores items of all sizes that a lock may have, without waiting for
// each answer.
func fillMemcached(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	var requests strings.Builder
	for size := 4; size <= 480; size += 20 {
		value := strings.Repeat("x", size)
		for i := range 12_000 {
			fmt.Fprintf(&requests, "set fill:%d:%d 0 0 %d noreply\r\n%s\r\n", size, i, size, value)
		}
	}
	requests.WriteString("version\r\n")
	if _, err := io.WriteString(conn, requests.String()); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n') // it has executed all of them
	return err
}

var fullServer = Story{
	Number: 27, Name: "server-full", TTL: time.Second,
	Title: "The server has no memory left, and then refuses all writes",
	Tells: "A has the lock. The server runs full: it must not forget the lock of A. Then it refuses all writes, as a server does whose disk is full or whose replicas are gone: A cannot renew, and must stop before its lock expires; B must not get in beside it. Then all is well again.",
	On: []Place{
		{"redis", run(servers.Redis, "", "--maxmemory", "3mb", "--maxmemory-policy", "noeviction"), []Case{
			caught("redis/no-watchdog", stage.TwoHolders), peer("redis/redsync"), ours("redis")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Deposit()
		r := newRedis(s.Server.Addrs[0])
		defer r.Close()
		s.Must(fill(s.Context(), r))
		s.Harm("the server is full")
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		s.Must(r.Del(s.Context(), fillKey).Err())
		s.Harm("there is room again, but the server refuses all writes")
		s.Must(r.ConfigSet(s.Context(), "min-replicas-to-write", "1").Err())
		a.Read()
		s.Wait(2 * s.TTL)
		s.Must(r.ConfigSet(s.Context(), "min-replicas-to-write", "0").Err())
		s.Harm("the server accepts writes")
		turn(b)
		a.Write()
		a.Unlock()
	},
}

var evictingServer = Story{
	Number: 27, Name: "server-evicts", TTL: time.Minute,
	Title: "The server runs full and evicts keys: the lock is one of them",
	Tells: "The same on a server that is set up to evict keys. The lock of A is gone while A believes to have it, and B gets in. dlock's doctor warns of such a server; A knows it at its next renewal, and its token is smaller than that of B.",
	On: []Place{
		{"redis", run(servers.Redis, "", "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"), []Case{
			caught("redis/no-fence", stage.TwoHolders), peer("redis/redsync"), ours("redis", stage.TwoFenced)}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Read()
		a.Check()
		s.Harm("other data fills the memory")
		r := newRedis(s.Server.Addrs[0])
		defer r.Close()
		value := bytes.Repeat([]byte("x"), 1000)
		for round := range 20 { // many times the memory
			_, err := r.Pipelined(s.Context(), func(p redis.Pipeliner) error {
				for i := range 1000 {
					p.Set(s.Context(), fmt.Sprint(fillKey, round, i), value, 0)
				}
				return nil
			})
			s.Must(err)
		}
		if b.TryFor(s.TTL / 4) {
			writeBoth(s, a, b)
		}
	},
}

// fillKey is the data that fills a server.
const fillKey = "other data"

// fill stores data until the server refuses to.
func fill(ctx context.Context, r *redis.Client) error {
	value := bytes.Repeat([]byte("x"), 1000)
	for range 100_000 {
		if r.RPush(ctx, fillKey, value).Err() != nil {
			return nil //nolint:nilerr // the server is full
		}
	}
	return errors.New("the server is never full")
}
