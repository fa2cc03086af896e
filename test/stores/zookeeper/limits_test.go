package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

const maxConnections = 6

// limited is a ZooKeeper that enforces quotas and accepts few connections.
func limited() *servers.Kind {
	kind := *servers.ZooKeeper
	kind.Args = func(in servers.Instance) []string {
		return slices.Insert(servers.ZooKeeper.Args(in), 0, "-Dzookeeper.enforceQuota=true")
	}
	kind.Configure = func(in servers.Instance) error {
		if err := servers.ZooKeeper.Configure(in); err != nil {
			return err
		}
		file, err := os.OpenFile(filepath.Join(in.Dir, "zoo.cfg"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(fmt.Sprintf("\nmaxClientCnxns=%d\n", maxConnections))
		return errors.Join(err, file.Close())
	}
	return &kind
}

// TestLimitsOfTheServerAreNamed: an error says which limit of the server an attempt has met.
func TestLimitsOfTheServerAreNamed(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, limited())
	conn := admin(t, server.Addr())
	for _, node := range []struct{ path, data string }{
		{"/full", ""},
		{"/zookeeper/quota/full", ""},
		{"/zookeeper/quota/full/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2"},
		{"/zookeeper/quota/full/zookeeper_stats", "count=1,bytes=0"},
	} {
		if _, err := conn.Create(node.path, []byte(node.data), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", node.path, err)
		}
	}
	store := open(t, server.URL())
	wantLimit := func(what string, store driver.Store, note int, kind error, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req := request("x")
		req.Holder.Note = strings.Repeat("n", note)
		start := time.Now()
		_, err := store.Acquire(ctx, req)
		if kind != nil && !errors.Is(err, kind) || kind != driver.ErrUnreachable && errors.Is(err, driver.ErrUnreachable) || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Acquire: %.300v after %v; want %v, and %q", what, err, time.Since(start), kind, text)
		}
	}
	wantLimit("a quota", open(t, server.URL()+"/full"), 0, driver.ErrMisconfigured, "quota")
	wantLimit("a note that the store does not send", store, 300_000, nil, "note")
	for range maxConnections - 3 {
		if _, _, err := admin(t, server.Addr()).Exists("/"); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit("too many connections", open(t, server.URL()), 0, driver.ErrUnreachable, "maxClientCnxns")
}
