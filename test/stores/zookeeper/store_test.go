package zookeeper

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// limit bounds the wait for an event that must happen.
const limit = 30 * time.Second

func open(t testing.TB, url string) *zklock.Store {
	t.Helper()
	store := want.Value(zklock.Open(t.Context(), url, nil))(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func client(t testing.TB, store driver.Store, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c := dlock.New(store, opts)
	t.Cleanup(func() { _ = c.Close() }) // some tests stop its server
	return c
}

// admin returns a connection for the test itself.
func admin(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, limit, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// start starts a server, and connects to it for the test itself.
func start(t testing.TB, kind *servers.Kind) (*servers.Server, *zk.Conn) {
	t.Helper()
	server := servers.Run(t, kind)
	return server, admin(t, server.Addr())
}

// inBothOrders runs a test with the order Fair and with the order Unfair.
func inBothOrders(t *testing.T, test func(t *testing.T, order string)) {
	t.Helper()
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			test(t, order)
		})
	}
}

// contenders returns the nodes of a lock's holder and waiters, without anchors.
func contenders(t testing.TB, conn *zk.Conn, name string) []string {
	t.Helper()
	return slices.DeleteFunc(childrenOf(t, conn, name), func(child string) bool { return !strings.Contains(child, "lock-") })
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: limit, Holder: driver.Holder{Host: "h", PID: 1, Program: "test"}}
}

// granted waits until a lock is granted.
func granted(t testing.TB, store driver.Store, name string) (grant driver.Grant) {
	t.Helper()
	req := request(name)
	await.Until(t, "another owner is granted the lock", func() (ok bool) {
		var err error
		grant, err = store.Acquire(t.Context(), req)
		return err == nil
	})
	return grant
}
