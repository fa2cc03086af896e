package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// acknowledged are the parameters of a store that waits for a replica.
const acknowledged = "replicas=1&replica_timeout=500ms"

// acknowledgedLate is for tests in which every replica answers: that of a busy machine may be late.
const acknowledgedLate = "replicas=1&replica_timeout=2s"

// TestFailover reports what happens when a master dies before its replicas know what it has
// granted: run it with -v.
func TestFailover(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		faults.RunEach(t, onSentinel("protocol="+protocol), faults.Unacknowledged)
		faults.RunEach(t, onSentinel("protocol="+protocol+"&"+acknowledged), faults.Acknowledged)
	})
}

// onSentinel returns a function that makes stores with Sentinel. The replicas reach the master
// through a proxy.
func onSentinel(query string) func(t testing.TB) bundle.Store {
	return func(t testing.TB) bundle.Store {
		t.Helper()
		var link *proxy.Proxy
		group := servers.RunSentinel(t, servers.SentinelOptions{Args: inMemory, ReplicaOf: func(master string) string {
			link = proxy.Run(t, master)
			return link.Addr()
		}})
		s := store(group.URL() + "?" + query)
		s.Failover = &bundle.Failover{
			NotAcknowledged: redislock.ErrNotReplicated,
			Isolate:         func() { link.Hold() },
			Kill: func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // the sentinels may need a second vote
				defer cancel()
				master, err := group.Master(ctx)
				if err == nil {
					err = master.Kill()
				}
				if err == nil {
					_, err = group.WaitFailover(ctx, master)
				}
				return err
			},
		}
		return s
	}
}

func TestMasterCutOff(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, protocol string) {
		faults.RunEach(t, onPartition("protocol="+protocol), faults.Partitions)
		faults.RunEach(t, onPartition("protocol="+protocol+"&"+acknowledged), faults.PartitionsAcknowledged)
	})
}

// maxLag is after how many seconds without a message from its replicas a master refuses to write.
// It checks once a second and counts whole seconds, so that it takes up to three seconds on a
// machine that never stalls.
const maxLag = 1

// onPartition returns a function that makes stores whose replicas, sentinel and other clients reach
// the master through a proxy.
func onPartition(query string) func(t testing.TB) bundle.Store {
	return func(t testing.TB) bundle.Store {
		t.Helper()
		args := append([]string{
			"--min-replicas-to-write", "1", "--min-replicas-max-lag", strconv.Itoa(maxLag),
			"--repl-diskless-sync-delay", "0", "--shutdown-timeout", "0",
		}, inMemory...)
		master := servers.Run(t, servers.Redis, args...)
		border := proxy.Run(t, master.Addr())
		replicas := servers.RunGroup(t, 2, servers.Redis, append(args, "--replicaof", strings.ReplaceAll(border.Addr(), ":", " "))...)
		awaitInfo(t, master.Addr(), "replication", fmt.Sprintf("min_slaves_good_slaves:%d", len(replicas)))
		awaitReplicas(t, master.Addr(), len(replicas))
		sentinel := servers.Run(t, watching(border.Addr()))
		awaitInfo(t, sentinel.Addr(), "sentinel", "slaves=2")
		s := store(sentinel.URL() + "?" + query)
		s.Failover = &bundle.Failover{NotAcknowledged: redislock.ErrNotReplicated}
		s.Partition = &bundle.Partition{
			Cut:           func() { border.Hold() },
			Inside:        store(master.URL() + "?" + query),
			RejectsWithin: 20 * time.Second,
		}
		return s
	}
}

// watching is a sentinel that decides alone, and knows the master by the given address.
func watching(master string) *servers.Kind {
	return &servers.Kind{
		Name:   "sentinel",
		Binary: servers.Redis.Binary,
		Init: func(in servers.Instance) ([]servers.Command, error) {
			config := fmt.Sprintf("sentinel monitor dlock %s 1\nsentinel down-after-milliseconds dlock 700\nsentinel failover-timeout dlock 30000\n",
				strings.ReplaceAll(master, ":", " "))
			file := filepath.Join(in.Data, "sentinel.conf")
			return nil, errors.Join(os.WriteFile(file, []byte(config), 0o666), os.Chmod(file, 0o666)) // the server rewrites it as another user
		},
		Args: func(in servers.Instance) []string {
			return []string{filepath.Join(in.Data, "sentinel.conf"), "--sentinel", "--bind", in.Host, "--port", strconv.Itoa(in.Port), "--dir", in.Data}
		},
		Probe: servers.Redis.Probe,
		URL:   func(addr string) string { return "redis+sentinel://" + addr + "/dlock" },
	}
}

// awaitReplicas blocks until that many replicas have acknowledged a write.
func awaitReplicas(t testing.TB, addr string, want int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	conn := client.Conn() // WAIT counts acknowledgements of this connection's writes
	defer conn.Close()
	if err := conn.Set(t.Context(), "dlock:probe", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var got int64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		var err error
		if got, err = conn.Wait(t.Context(), want, time.Second).Result(); err != nil {
			t.Fatal(err)
		}
		if got >= int64(want) {
			return
		}
	}
	t.Fatalf("%d of %d replicas have acknowledged a write", got, want)
}

// awaitInfo blocks until a section of INFO contains a text.
func awaitInfo(t testing.TB, addr, section, want string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var info string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		var err error
		if info, err = client.Info(t.Context(), section).Result(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info, want) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("INFO %s of %s says %s; want %s", section, addr, info, want)
}
