package subjects

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

var zookeeperStore = Store{
	Name:      "zookeeper",
	Open:      openZooKeeper,
	Serve:     serveZooKeeper,
	Processes: true,
	Held:      10_000, // each is a write of its own
	Subjects: []Subject{
		{Name: "raw", Open: onZooKeeper(rawZooKeeper)},
		direct("store", openZooKeeper, millisecond).only("solo", "many"),
		library("dlock", openZooKeeper).modes(),
		library("dlock", openZooKeeper).modes().exclusive(),
		library("dlock/exclusive", byURL(zklock.Open, "zookeeper://SERVER?modes=exclusive", nil)),
		{Name: "go-zookeeper", Open: onZooKeeper(goZooKeeper)},
		curatorSubject,
	},
}

var openZooKeeper = byURL(zklock.Open, "zookeeper://SERVER", nil)

// onZooKeeper opens a subject over the same client.
func onZooKeeper(newWorker func(c *zk.Conn, path string) Worker) func(context.Context, Place) (*Client, error) {
	return func(_ context.Context, at Place) (*Client, error) {
		conn, err := dialZooKeeper(at.Addrs)
		if err != nil {
			return nil, err
		}
		return &Client{
			Worker: workers(func(name string) Worker { return newWorker(conn, "/"+strings.ReplaceAll(name, "/", "-")) }),
			Close:  func() error { conn.Close(); return nil },
		}, nil
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// dialZooKeeper opens a session.
func dialZooKeeper(addrs []string) (*zk.Conn, error) {
	conn, _, err := zk.Connect(addrs, dlock.DefaultTTL, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	_, _, err = conn.Exists("/") // waits for the session
	return conn, err
}

// rawZooKeeper is the floor: it creates and deletes an ephemeral node.
func rawZooKeeper(c *zk.Conn, path string) Worker {
	return Worker{
		Lock: polling(func(context.Context) (bool, error) {
			_, err := c.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNodeExists) {
				return false, nil
			}
			return err == nil, err
		}),
		Unlock: func(context.Context) error { return c.Delete(path, -1) },
	}
}

// goZooKeeper is the client's own Lock, which does not support contexts.
func goZooKeeper(c *zk.Conn, path string) Worker {
	lock := zk.NewLock(c, path, zk.WorldACL(zk.PermAll))
	return Worker{
		Lock:   func(context.Context) error { return lock.Lock() },
		Unlock: func(context.Context) error { return lock.Unlock() },
	}
}

func serveZooKeeper(context.Context) (*Servers, error) {
	s, err := start(servers.ZooKeeper, 1)
	if err != nil {
		return nil, err
	}
	control, err := dialZooKeeper(s.Addrs())
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.disconnect = func() error { control.Close(); return nil }
	s.Empty = func(context.Context) error { return emptyZooKeeper(control, "/") }
	s.count = func(ctx context.Context) (map[string]uint64, error) {
		const packets = "zk_packets_received"
		figures, err := s.all[0].Monitor(ctx)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(figures[packets], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ZooKeeper reports %s as %q", packets, figures[packets])
		}
		return map[string]uint64{packets: n}, nil
	}
	return s, nil
}

// emptyZooKeeper removes all nodes below a path, except those of ZooKeeper itself.
func emptyZooKeeper(c *zk.Conn, below string) error {
	children, _, err := c.Children(below)
	if errors.Is(err, zk.ErrNoNode) { // empty containers are removed by the server
		return nil
	}
	for _, child := range children {
		at := path.Join(below, child)
		if at == "/zookeeper" {
			continue
		}
		if err := emptyZooKeeper(c, at); err != nil {
			return err
		}
		if err := c.Delete(at, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return err
}
