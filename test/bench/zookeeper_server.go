package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

// zookeeperServer is the server of the ZooKeeper cases.
type zookeeperServer struct {
	server  *servers.Server
	control *zk.Conn
}

func serveZooKeeper(ctx context.Context) (served, error) {
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

func (s *zookeeperServer) stop() error {
	s.control.Close()
	return s.server.Stop()
}

func (s *zookeeperServer) prepare(_ context.Context, dir string) error {
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

func (s *zookeeperServer) done(ctx context.Context) (work, error) {
	counts, err := s.server.Monitor(ctx)
	if err != nil {
		return work{}, err
	}
	received, err := strconv.ParseUint(counts["zk_packets_received"], 10, 64)
	if err != nil {
		return work{}, fmt.Errorf("ZooKeeper reports zk_packets_received as %q", counts["zk_packets_received"])
	}
	cpu, err := cpuOf(strconv.Itoa(s.server.PID()))
	return work{commands: map[string]uint64{"packets": received}, cpu: cpu}, err
}

// listen observes nothing: all received requests come from clients.
func (s *zookeeperServer) listen(context.Context) (stop func() (map[string]float64, error), err error) {
	return func() (map[string]float64, error) { return nil, nil }, nil
}
