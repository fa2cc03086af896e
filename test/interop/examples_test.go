//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/test/examples"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// startExample starts a program of the folder examples that sells three of item
// 7.
func startExample(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := examples.Command(t, name, append(args, "--item", "7", "--sell", "3")...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestRedissonExample checks that the example of a move from Java to Go waits for
// Java's lock, is woken when it is free, and sells the stock.
func TestRedissonExample(t *testing.T) {
	t.Parallel()
	eachRedisson(t, func(t *testing.T, build string) {
		server := servers.Run(t, servers.Redis)
		client := connect(t, server)
		if err := client.Set(t.Context(), "stock-of-7", 3, 0).Err(); err != nil {
			t.Fatal(err)
		}
		s := share(t, build, server.URL(), client, server)
		java := s.javaThread(t, "lock", "stock:7")
		java.locks(longTTL)
		example := startExample(t, "redisson", "--redis", server.Addr())
		s.awaitSubscriber(t, "stock:7")
		if left, err := client.Get(t.Context(), "stock-of-7").Int(); err != nil || left != 3 {
			t.Errorf("while Java holds the lock %d are left, %v; want 3", left, err)
		}
		began := java.unlocks()
		if err := example.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > longTTL/2 {
			t.Errorf("the example was not woken: it took %v", took)
		}
		if left, err := client.Get(t.Context(), "stock-of-7").Int(); err != nil || left != 0 {
			t.Errorf("%d are left, %v; want none", left, err)
		}
		java.locks(longTTL)
		java.unlocks()
	})
}

// TestCuratorExample is TestRedissonExample with ZooKeeper.
func TestCuratorExample(t *testing.T) {
	t.Parallel()
	for build := range strings.SplitSeq(os.Getenv(curatorEnv), ":") {
		t.Run(filepath.Base(build), func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.ZooKeeperReaping)
			conn, _, err := zk.Connect([]string{server.Addr()}, javaLimit, zk.WithLogInfo(false))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			if _, err := conn.Create("/stock-of-7", []byte("3"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			java := startAgent(t, build, "dlock.interop.Curator", server.Addr(), "/locks/stock/7")
			java.do("lock", "locked")
			example := startExample(t, "curator", "--zookeeper", server.Addr())
			eventually(t, "the example waits", func() (bool, error) {
				nodes, _, err := conn.Children("/locks/stock/7")
				return len(nodes) == 3, err // Java has one, and the example two
			})
			if left, _, err := conn.Get("/stock-of-7"); err != nil || string(left) != "3" {
				t.Errorf("while Java holds the lock %q are left, %v; want 3", left, err)
			}
			java.do("unlock", "unlocked")
			if err := example.Wait(); err != nil {
				t.Error(err)
			}
			if left, _, err := conn.Get("/stock-of-7"); err != nil || string(left) != "0" {
				t.Errorf("%q are left, %v; want none", left, err)
			}
			java.do("lock", "locked")
			java.do("unlock", "unlocked")
		})
	}
}
