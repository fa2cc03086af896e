package examples

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// Four processes sell the whole stock. Without the lock they would sell more.
const (
	sellers = 4
	each    = 25
)

// TestSellWithRedisson runs the example without Java, which `make interop` adds.
func TestSellWithRedisson(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if err := client.Set(t.Context(), "stock-of-7", sellers*each, 0).Err(); err != nil {
		t.Fatal(err)
	}
	sellOut(t, "redisson", "--redis", server.Addr())
	if left, err := client.Get(t.Context(), "stock-of-7").Int(); err != nil || left != 0 {
		t.Errorf("%d are left, %v; want none", left, err)
	}
}

// TestSellWithCurator runs the example without Java, which `make interop` adds.
func TestSellWithCurator(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/stock-of-7", []byte(strconv.Itoa(sellers*each)), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	sellOut(t, "curator", "--zookeeper", server.Addr())
	if left, _, err := conn.Get("/stock-of-7"); err != nil || string(left) != "0" {
		t.Errorf("%q are left, %v; want none", left, err)
	}
}

// sellOut runs all sellers at once.
func sellOut(t *testing.T, example string, args ...string) {
	t.Helper()
	sold := make(chan error, sellers)
	for range sellers {
		cmd := Command(t, example, append(args, "--item", "7", "--sell", fmt.Sprint(each))...)
		go func() {
			output, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output)
			}
			sold <- err
		}()
	}
	for range sellers {
		if err := <-sold; err != nil {
			t.Error(err)
		}
	}
}
