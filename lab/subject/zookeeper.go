package subject

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

var zookeeperSubjects = []Subject{
	{"zookeeper/create-again", Wrong, "a sequential node without a mark of its creator, created again if the answer was lost", openZooKeeper(true)},
	{"zookeeper/one-node", Wrong, "one node is the lock, and every waiter watches it: a release wakes all of them", openOneNode},
	{"zookeeper/go-zookeeper", Peer, "the lock of github.com/go-zookeeper/zk", openZooKeeper(false)},
}

func openZooKeeper(again bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(_ context.Context, c Config) (Locker, error) {
		conn, err := connectZooKeeper(c)
		return &zookeeperLocker{conn, c, again}, err
	}
}

func connectZooKeeper(c Config) (*zk.Conn, error) {
	addr, _, _ := strings.Cut(strings.TrimPrefix(c.URL, "zookeeper://"), "?")
	conn, _, err := zk.Connect(strings.Split(addr, ","), max(c.TTL, 2*time.Second), zk.WithLogInfo(false), zk.WithLogger(silent{}))
	return conn, err
}

func openOneNode(_ context.Context, c Config) (Locker, error) {
	conn, err := connectZooKeeper(c)
	return &oneNode{zookeeperLocker{conn, c, false}}, err
}

// oneNode creates the node that is the lock, or waits until it is gone.
type oneNode struct{ zookeeperLocker }

func (l *oneNode) Lock(ctx context.Context) (Held, error) {
	path := "/" + l.config.Name
	for {
		_, err := l.conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		switch {
		case err == nil:
			return zookeeperHeld{&l.zookeeperLocker, func() error { return l.conn.Delete(path, -1) }}, nil
		case errors.Is(err, zk.ErrNodeExists):
		default:
			return nil, err
		}
		exists, _, gone, err := l.conn.ExistsW(path)
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
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zookeeperLocker struct {
	conn   *zk.Conn
	config Config
	again  bool
}

func (l *zookeeperLocker) Lock(ctx context.Context) (Held, error) {
	if l.again {
		return l.lockAgain(ctx)
	}
	lock := zk.NewLock(l.conn, "/"+l.config.Name, zk.WorldACL(zk.PermAll))
	done := make(chan error, 1)
	go func() { done <- lock.Lock() }()
	select {
	case err := <-done:
		return zookeeperHeld{l, lock.Unlock}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lockAgain creates a node, and creates another one if the answer was lost.
func (l *zookeeperLocker) lockAgain(ctx context.Context) (Held, error) {
	root := "/" + l.config.Name
	var mine string
	err := pollLock(ctx, func() (created bool, err error) {
		if _, err := l.conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return false, nil
		}
		mine, err = l.conn.Create(root+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	err = pollLock(ctx, func() (first bool, err error) {
		children, _, err := l.conn.Children(root)
		for _, child := range children {
			if root+"/"+child < mine {
				return false, err
			}
		}
		return err == nil, err
	})
	return zookeeperHeld{l, func() error { return l.conn.Delete(mine, -1) }}, err
}

type zookeeperHeld struct {
	locker *zookeeperLocker
	unlock func() error
}

func (h zookeeperHeld) Believes() bool               { return h.locker.conn.State() == zk.StateHasSession }
func (h zookeeperHeld) Token() uint64                { return 0 }
func (h zookeeperHeld) Unlock(context.Context) error { return h.unlock() }
