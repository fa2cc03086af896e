package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdServer is the server of the etcd cases.
type etcdServer struct {
	server  *servers.Server
	control *clientv3.Client
}

func serveEtcd(context.Context) (served, error) {
	server, err := servers.Start(servers.Etcd)
	if err != nil {
		return nil, err
	}
	control, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &etcdServer{server, control}, nil
}

func (s *etcdServer) stop() error { return errors.Join(s.control.Close(), s.server.Stop()) }

const etcdAddressFile = "etcd"

func (s *etcdServer) prepare(ctx context.Context, dir string) error {
	if _, err := s.control.Delete(ctx, "", clientv3.WithPrefix()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, etcdAddressFile), []byte(s.server.Addr()), 0o600)
}

var (
	grpcCalls  = regexp.MustCompile(`(?m)^grpc_server_started_total\{grpc_method="(\w+)",\S* (\S+)$`)
	processCPU = regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`)
)

func (s *etcdServer) done(ctx context.Context) (work, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.Addr()+"/metrics", nil)
	if err != nil {
		return work{}, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return work{}, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return work{}, err
	}
	all := work{commands: make(map[string]uint64)}
	for _, found := range grpcCalls.FindAllSubmatch(text, -1) {
		calls, err := strconv.ParseFloat(string(found[2]), 64)
		if err != nil {
			return work{}, err
		}
		all.commands[string(found[1])] += uint64(calls)
	}
	cpu := processCPU.FindSubmatch(text)
	if cpu == nil || len(all.commands) == 0 {
		return work{}, fmt.Errorf("the metrics of etcd do not tell what was done: %d bytes", len(text))
	}
	seconds, err := strconv.ParseFloat(string(cpu[1]), 64)
	all.cpu = time.Duration(seconds * float64(time.Second))
	return all, err
}

// listen observes nothing: every executed call is a call of a client.
func (s *etcdServer) listen(context.Context) (stop func() (map[string]float64, error), err error) {
	return func() (map[string]float64, error) { return nil, nil }, nil
}
