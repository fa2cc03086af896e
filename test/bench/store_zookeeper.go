package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

var zookeeperStore = store{
	name:      "zookeeper",
	open:      openZooKeeper,
	serve:     serveZooKeeper,
	processes: true,
	held:      10_000, // each is a write of its own
	subjects: []subject{
		{name: "raw", open: onZooKeeper(func(name string, c *zk.Conn) worker { return &rawZooKeeperWorker{c, "/" + name} })},
		direct("store", openZooKeeper, millisecond).only("solo", "many"),
		library("dlock", openZooKeeper),
		{name: "go-zookeeper", open: onZooKeeper(func(name string, c *zk.Conn) worker {
			return &goZooKeeperWorker{lockOf: func() *zk.Lock { return zk.NewLock(c, "/"+name, zk.WorldACL(zk.PermAll)) }}
		})},
		curatorSubject.only("handover"),
	},
}

const zookeeperAddressFile = "zookeeper"

func zookeeperAddr(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, zookeeperAddressFile))
	return string(content), err
}

func openZooKeeper(dir string) (func(context.Context) (opened, error), error) {
	addr, err := zookeeperAddr(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (opened, error) {
		s, err := zklock.New([]string{addr}, nil)
		return opened{s, func() error { return nil }}, err
	}, nil
}

// onZooKeeper opens a subject over the same client.
func onZooKeeper(newWorker func(name string, c *zk.Conn) worker) func(string) (func(context.Context) (client, error), error) {
	return func(dir string) (func(context.Context) (client, error), error) {
		addr, err := zookeeperAddr(dir)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (client, error) {
			conn, err := dialZooKeeper(ctx, addr)
			return &zookeeperClient{conn, newWorker}, err
		}, nil
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// dialZooKeeper opens a session.
func dialZooKeeper(ctx context.Context, addr string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, dlock.DefaultTTL, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, context.Cause(ctx)
		}
	}
}

type zookeeperClient struct {
	conn      *zk.Conn
	newWorker func(name string, c *zk.Conn) worker
}

func (c *zookeeperClient) worker(_ context.Context, name string) (worker, error) {
	return c.newWorker(strings.ReplaceAll(name, "/", "-"), c.conn), nil
}

func (c *zookeeperClient) commands() (uint64, bool) { return 0, false } // counted by the server

func (c *zookeeperClient) close() error {
	c.conn.Close()
	return nil
}

// rawZooKeeperWorker is the floor: it creates and deletes an ephemeral node.
type rawZooKeeperWorker struct {
	conn *zk.Conn
	path string
}

func (w *rawZooKeeperWorker) lock(ctx context.Context) error {
	for {
		_, err := w.conn.Create(w.path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawZooKeeperWorker) unlock(context.Context) error { return w.conn.Delete(w.path, -1) }

// goZooKeeperWorker is the client's own Lock, which does not support contexts.
type goZooKeeperWorker struct {
	lockOf  func() *zk.Lock
	current *zk.Lock
}

func (w *goZooKeeperWorker) lock(ctx context.Context) error {
	if w.current == nil {
		w.current = w.lockOf()
	}
	const brief = time.Second
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > brief {
		return w.current.Lock()
	}
	abandoned := w.current
	got := make(chan error, 1)
	go func() { got <- abandoned.Lock() }()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		go func() {
			if <-got == nil {
				_ = abandoned.Unlock() // the result has no receiver; the end of the session frees the lock otherwise
			}
		}()
		w.current = nil
		return ctx.Err()
	}
}

func (w *goZooKeeperWorker) unlock(context.Context) error { return w.current.Unlock() }
