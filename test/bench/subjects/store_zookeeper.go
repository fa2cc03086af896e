package subjects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

var zookeeperStore = Store{
	Name:      "zookeeper",
	Open:      openZooKeeper(nil),
	Serve:     serveZooKeeper,
	Processes: true,
	Held:      10_000, // each is a write of its own
	Subjects: []Subject{
		{Name: "raw", Open: onZooKeeper(func(name string, c *zk.Conn) Worker { return &rawZooKeeperWorker{c, "/" + name} })},
		direct("store", openZooKeeper(nil), millisecond).only("solo", "many"),
		library("dlock", openZooKeeper(nil)).modes(),
		library("dlock", openZooKeeper(nil)).modes().exclusive(),
		library("dlock/exclusive", openZooKeeper(&zklock.Options{ExclusiveOnly: true})),
		{Name: "go-zookeeper", Open: onZooKeeper(func(name string, c *zk.Conn) Worker {
			return &goZooKeeperWorker{lockOf: func() *zk.Lock { return zk.NewLock(c, "/"+name, zk.WorldACL(zk.PermAll)) }}
		})},
		curatorSubject,
	},
}

const zookeeperAddressFile = "zookeeper"

func zookeeperAddr(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, zookeeperAddressFile))
	return string(content), err
}

func openZooKeeper(opts *zklock.Options) opener {
	return func(dir string) (func(context.Context) (opened, error), error) {
		addr, err := zookeeperAddr(dir)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (opened, error) {
			s, err := zklock.New([]string{addr}, opts)
			return opened{s, func() error { return nil }}, err
		}, nil
	}
}

// onZooKeeper opens a subject over the same client.
func onZooKeeper(newWorker func(name string, c *zk.Conn) Worker) func(string) (func(context.Context) (Client, error), error) {
	return func(dir string) (func(context.Context) (Client, error), error) {
		addr, err := zookeeperAddr(dir)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Client, error) {
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
	newWorker func(name string, c *zk.Conn) Worker
}

func (c *zookeeperClient) Worker(_ context.Context, name string) (Worker, error) {
	return c.newWorker(strings.ReplaceAll(name, "/", "-"), c.conn), nil
}

func (c *zookeeperClient) Commands() (uint64, bool) { return 0, false } // counted by the server

func (c *zookeeperClient) Close() error {
	c.conn.Close()
	return nil
}

// rawZooKeeperWorker is the floor: it creates and deletes an ephemeral node.
type rawZooKeeperWorker struct {
	conn *zk.Conn
	path string
}

func (w *rawZooKeeperWorker) Lock(ctx context.Context) error {
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

func (w *rawZooKeeperWorker) Unlock(context.Context) error { return w.conn.Delete(w.path, -1) }

// goZooKeeperWorker is the client's own Lock, which does not support contexts.
type goZooKeeperWorker struct {
	lockOf  func() *zk.Lock
	current *zk.Lock
}

func (w *goZooKeeperWorker) Lock(ctx context.Context) error {
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

func (w *goZooKeeperWorker) Unlock(context.Context) error { return w.current.Unlock() }

// zookeeperServer is the server of the ZooKeeper cases.
type zookeeperServer struct {
	server  *servers.Server
	control *zk.Conn
}

func serveZooKeeper(ctx context.Context) (Served, error) {
	server, err := servers.Start(servers.ZooKeeper)
	if err != nil {
		return nil, err
	}
	control, err := dialZooKeeper(ctx, server.Addr())
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &zookeeperServer{server, control}, nil
}

func (s *zookeeperServer) Stop() error {
	s.control.Close()
	return s.server.Stop()
}

func (s *zookeeperServer) Prepare(_ context.Context, dir string) error {
	if err := s.empty("/"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, zookeeperAddressFile), []byte(s.server.Addr()), 0o600)
}

// empty removes all nodes below a path, except those of ZooKeeper itself.
func (s *zookeeperServer) empty(path string) error {
	children, _, err := s.control.Children(path)
	if errors.Is(err, zk.ErrNoNode) { // empty containers are removed by the server
		return nil
	}
	for _, child := range children {
		if path == "/" && child == "zookeeper" {
			continue
		}
		at := filepath.Join(path, child)
		if err := s.empty(at); err != nil {
			return err
		}
		if err := s.control.Delete(at, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return err
}

func (s *zookeeperServer) Done(ctx context.Context) (Work, error) {
	counts, err := s.server.Monitor(ctx)
	if err != nil {
		return Work{}, err
	}
	received, err := strconv.ParseUint(counts["zk_packets_received"], 10, 64)
	if err != nil {
		return Work{}, fmt.Errorf("ZooKeeper reports zk_packets_received as %q", counts["zk_packets_received"])
	}
	cpu, err := cpuOf(strconv.Itoa(s.server.PID()))
	return Work{Commands: map[string]uint64{"packets": received}, CPU: cpu}, err
}

// Listen observes nothing: all received requests come from clients.
func (s *zookeeperServer) Listen(context.Context) (stop func() (map[string]float64, error), err error) {
	return func() (map[string]float64, error) { return nil, nil }, nil
}
