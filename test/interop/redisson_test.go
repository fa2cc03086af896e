//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// redissonEnv lists folders with a build of the Java program, each for one
// version of Redisson.
const redissonEnv = "DLOCK_TEST_REDISSON"

// javaWatchdog is how long a lock of Java lasts that was acquired without a lease
// time.
const javaWatchdog = 3 * time.Second

// withoutDisk lets servers answer without waiting for a disk that they share: the tests
// measure hand-overs, and no server restarts.
var withoutDisk = []string{"--appendonly", "no"}

// kind is one of Redisson's kinds of locks, and how dlock uses the same name. They exclude each other.
type kind struct {
	java string
	opts []dlock.Option
	mode string // of dlock, if it is not exclusive
}

func (k kind) String() string { return k.java + k.mode }

var kinds = []kind{
	{java: "lock"},
	{java: "fenced"},
	{java: "fair", opts: []dlock.Option{dlock.WithFair()}},
	{java: "read"},
	{java: "write"},
	{java: "lock", opts: []dlock.Option{dlock.WithShared()}, mode: "-shared"},
	{java: "write", opts: []dlock.Option{dlock.WithShared()}, mode: "-shared"},
}

// shared is a server, and Java and dlock that use it.
type shared struct {
	build  string // of the Java program
	url    string
	java   *child.Threads
	redis  redis.UniversalClient
	nodes  []*redis.Client                  // all servers with subscribers
	client func(t testing.TB) *dlock.Client // like that of another process
}

func TestRedisson(t *testing.T) {
	t.Parallel()
	eachRedisson(t, func(t *testing.T, build string) {
		server := servers.Run(t, servers.Redis, withoutDisk...)
		s := share(t, build, server.URL(), connect(t, server), server)
		for name, test := range map[string]func(t *testing.T, s *shared){
			"renewal of dlock":    redissonDlockRenews,
			"watchdog of Java":    redissonWatchdog,
			"killed Java":         redissonKilledJava,
			"re-entry of Java":    redissonReentry,
			"forced unlock":       redissonForced,
			"broken lock":         redissonBroken,
			"tokens":              redissonTokens,
			"fair order":          redissonFairOrder,
			"dead fair Java":      redissonDeadFairJava,
			"dead fair dlock":     redissonDeadFairDlock,
			"dead fair between":   redissonDeadFairBetween,
			"fair Java gives up":  redissonFairJavaGivesUp,
			"fair dlock gives up": redissonFairDlockGivesUp,
			"every pair":          redissonEveryPair,
			"permits wake":        redissonPermitsWake,
			"readers together":    redissonReadersTogether,
			"fair readers":        redissonFairReaders,
			"downgrade of Java":   redissonJavaDowngrades,
			"downgrade of dlock":  redissonDlockDowngrades,
			"dead reader of Java": redissonDeadJavaReader,
			"dead dlock reader":   redissonDeadDlockReader,
			"forced write lock":   redissonForcedWriteLock,
			"broken reader":       redissonBrokenReader,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, s)
			})
		}
		s.testKinds(t)
	})
}

// testKinds runs the tests that are the same for every kind of lock and every
// kind of server.
func (s *shared) testKinds(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String()+" excludes", func(t *testing.T) {
			t.Parallel()
			redissonExclusion(t, s, kind)
		})
		t.Run(kind.String()+" wakes", func(t *testing.T) {
			t.Parallel()
			redissonWakes(t, s, kind)
		})
	}
}

// eachRedisson runs a test for each version of Redisson that was built.
func eachRedisson(t *testing.T, test func(t *testing.T, build string)) {
	builds := filepath.SplitList(os.Getenv(redissonEnv))
	if len(builds) == 0 {
		t.Fatalf("%s is not set: run test/interop/redisson/run, which builds the Java program", redissonEnv)
	}
	for _, build := range builds {
		t.Run(filepath.Base(build), func(t *testing.T) {
			t.Parallel()
			test(t, build)
		})
	}
}

// share starts Java. servers are all servers of the URL.
func share(t testing.TB, build, url string, client redis.UniversalClient, all ...*servers.Server) *shared {
	t.Helper()
	var nodes []*redis.Client
	for _, server := range all {
		nodes = append(nodes, connect(t, server))
	}
	return &shared{
		build: build,
		url:   url,
		java:  startJava(t, build, url),
		redis: client,
		nodes: nodes,
		client: func(t testing.TB) *dlock.Client {
			return newClient(t, newStore(t, client, redislock.Redisson))
		},
	}
}

func startJava(t testing.TB, build, url string) *child.Threads {
	t.Helper()
	return child.RunThreads(t, javaCommand(t, build, "dlock.interop.Agent", url, fmt.Sprint(javaWatchdog.Milliseconds())))
}

// javaThread is a thread of Java that uses one lock.
type javaThread struct {
	*child.Thread
	t    testing.TB
	kind string
	name string
}

func (s *shared) javaThread(t testing.TB, kind, name string) javaThread {
	return javaThread{s.java.Thread(t), t, kind, name}
}

// beginLock lets Java wait for the lock. gets waits until Java has it.
func (j javaThread) beginLock() {
	j.t.Helper()
	j.Send("lock", j.kind, j.name, longTTL.Milliseconds())
}

func (j javaThread) gets() (token uint64, at time.Time) {
	j.t.Helper()
	words := j.Expect("held")
	return uint64(j.number(words[0])), time.UnixMicro(j.number(words[1]))
}

// tries lets Java wait for the lock, and reports whether it got it.
func (j javaThread) tries(wait, lease time.Duration) (token uint64, got bool) {
	j.t.Helper()
	j.Send("try", j.kind, j.name, wait.Milliseconds(), lease.Milliseconds())
	switch words := j.Receive(); words[0] {
	case "held":
		return uint64(j.number(words[1])), true
	case "refused":
		return 0, false
	default:
		j.t.Fatalf("Java answered %q", words)
		return 0, false
	}
}

// locks lets Java acquire a free lock.
func (j javaThread) locks(lease time.Duration) (token uint64) {
	j.t.Helper()
	token, got := j.tries(0, lease)
	if !got {
		j.t.Fatalf("Java did not get the %s %q, which is free", j.kind, j.name)
	}
	return token
}

// isRefused checks that Java does not get a lock that dlock holds.
func (j javaThread) isRefused() {
	j.t.Helper()
	if _, got := j.tries(0, longTTL); got {
		j.t.Fatalf("Java got the %s %q, which dlock has", j.kind, j.name)
	}
}

func (j javaThread) unlocks() (began time.Time) {
	j.t.Helper()
	j.Send("unlock", j.kind, j.name)
	return time.UnixMicro(j.number(j.Expect("unlocked")[0]))
}

func (j javaThread) number(word string) int64 {
	j.t.Helper()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		j.t.Fatalf("Java answered %q, want a number", word)
	}
	return n
}

// awaitSubscriber waits until there is a subscriber for the end of a lock. A
// cluster has two kinds of channels; a subscriber of either is enough.
func (s *shared) awaitSubscriber(t testing.TB, name string) {
	t.Helper()
	pattern := "redisson_*lock*:{*" + name + "*" // of RLock or RReadWriteLock
	eventually(t, "a client has subscribed to "+pattern, func() (bool, error) {
		for _, node := range s.nodes {
			general, err := node.PubSubChannels(t.Context(), pattern).Result()
			if err != nil {
				return false, err
			}
			sharded, err := node.PubSubShardChannels(t.Context(), pattern).Result()
			if err != nil || len(general)+len(sharded) > 0 {
				return true, err
			}
		}
		return false, nil
	})
}
