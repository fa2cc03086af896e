package subject

import (
	"context"
	"errors"
	"io"
	"log"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

var zookeeperSubjects = []Subject{
	{"zookeeper/create-again", Wrong, "a sequential node without a mark of its creator, created again if the answer was lost", openCreateAgain},
	{"zookeeper/one-node", Wrong, "one node is the lock, and every waiter watches it: a release wakes all of them", openOneNode},
	{"zookeeper/go-zookeeper", Peer, "the lock of github.com/go-zookeeper/zk", openGoZooKeeper},
}

func connectZooKeeper(c Config) (*zk.Conn, error) {
	addr, _, _ := strings.Cut(strings.TrimPrefix(c.URL, "zookeeper://"), "?")
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	conn, _, err := zk.Connect(strings.Split(addr, ","), max(c.TTL, 2*time.Second), zk.WithLogInfo(false), quiet)
	return conn, err
}

// zookeeperHeld is a lock whose process trusts it while it has a session.
func zookeeperHeld(conn *zk.Conn, unlock func() error) Held {
	return held{
		unlock:   func(context.Context) error { return unlock() },
		believes: func() bool { return conn.State() == zk.StateHasSession },
	}
}

func openGoZooKeeper(_ context.Context, c Config) (Locker, error) {
	conn, err := connectZooKeeper(c)
	return lockFunc(func(ctx context.Context) (Held, error) {
		lock := zk.NewLock(conn, "/"+c.Name, zk.WorldACL(zk.PermAll))
		done := make(chan error, 1)
		go func() { done <- lock.Lock() }()
		select {
		case err := <-done:
			return zookeeperHeld(conn, lock.Unlock), err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}), err
}

// openOneNode creates the node that is the lock, or waits until it is gone.
func openOneNode(_ context.Context, c Config) (Locker, error) {
	conn, err := connectZooKeeper(c)
	path := "/" + c.Name
	return lockFunc(func(ctx context.Context) (Held, error) {
		for {
			_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if err == nil {
				return zookeeperHeld(conn, func() error { return conn.Delete(path, -1) }), nil
			} else if !errors.Is(err, zk.ErrNodeExists) {
				return nil, err
			}
			exists, _, gone, err := conn.ExistsW(path)
			if err != nil {
				return nil, err
			}
			if !exists {
				continue
			}
			select {
			case <-gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}), err
}

// openCreateAgain creates a node, and creates another one if the answer was lost.
func openCreateAgain(_ context.Context, c Config) (Locker, error) {
	conn, err := connectZooKeeper(c)
	root := "/" + c.Name
	return lockFunc(func(ctx context.Context) (Held, error) {
		var mine string
		err := pollLock(ctx, func() (created bool, err error) {
			_, err = conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return false, nil
			}
			mine, err = conn.Create(root+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			return err == nil, nil
		})
		if err != nil {
			return nil, err
		}
		err = pollLock(ctx, func() (first bool, err error) {
			children, _, err := conn.Children(root)
			for _, child := range children {
				if root+"/"+child < mine {
					return false, err
				}
			}
			return err == nil, err
		})
		return zookeeperHeld(conn, func() error { return conn.Delete(mine, -1) }), err
	}), err
}
