package servers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const etcdClusterSize = 3

// EtcdCluster is etcd on three servers, of which any two are enough.
type EtcdCluster struct{ Members Group }

// RunEtcdCluster starts an EtcdCluster for a test, and stops it when the test
// ends. peer, if not nil, maps the address at which a member listens to the
// address that the other members use for it.
func RunEtcdCluster(t testing.TB, peer func(addr string) string) *EtcdCluster {
	t.Helper()
	return keep(StartEtcdCluster(peer))(t)
}

// StartEtcdCluster starts an EtcdCluster and waits until it serves clients.
func StartEtcdCluster(peer func(addr string) string) (*EtcdCluster, error) {
	var list, listens, advertised []string
	for i := range etcdClusterSize {
		port, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		listens = append(listens, peerURL(port))
		advertised = append(advertised, peerURL(port))
		if peer != nil {
			advertised[i] = "http://" + peer(strings.TrimPrefix(listens[i], "http://"))
		}
		list = append(list, etcdName(i)+"="+advertised[i])
	}
	members, err := startEach(etcdClusterSize, func(i int) (*Server, error) {
		kind := *Etcd
		kind.Args = func(in Instance) []string {
			args := etcdArgs(in, "http", etcdName(i), listens[i], strings.Join(list, ","))
			return append(args, "--initial-advertise-peer-urls", advertised[i],
				"--strict-reconfig-check=false") // a new cluster counts as unhealthy for five seconds
		}
		return Start(&kind)
	})
	if err != nil {
		return nil, err
	}
	return &EtcdCluster{members}, nil
}

func etcdName(i int) string { return fmt.Sprintf("member%d", i) }

// URL returns a URL with the addresses of all members.
func (c *EtcdCluster) URL() string { return Etcd.URL(c.Members.list()) }

// Leader waits for a leader and returns it.
func (c *EtcdCluster) Leader(ctx context.Context) (*Server, error) {
	return c.Members.awaitLeader(ctx, func(ctx context.Context, addr string) bool {
		status, err := etcdStatus(ctx, addr)
		return err == nil && status.Leader == status.Header.MemberId && len(status.Errors) == 0
	})
}

func etcdStatus(ctx context.Context, addr string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.Timeout)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), Context: ctx})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }() // the connection is not used any more
	return client.Status(ctx, addr)
}

// AddLearner starts a member that does not vote, for a test, and stops it when the test ends.
func (c *EtcdCluster) AddLearner(t testing.TB) *Server {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Members[0].Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // the connection is not used any more
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	added, err := client.MemberAddAsLearner(t.Context(), []string{peerURL(port)})
	if err != nil {
		t.Fatal(err)
	}
	const name = "learner"
	list := []string{name + "=" + peerURL(port)}
	for _, member := range added.Members {
		if member.ID != added.Member.ID {
			list = append(list, member.Name+"="+member.PeerURLs[0])
		}
	}
	kind := *Etcd
	kind.Args = func(in Instance) []string {
		return append(etcdArgs(in, "http", name, peerURL(port), strings.Join(list, ",")), "--initial-cluster-state", "existing")
	}
	kind.Probe = func(ctx context.Context, addr string) error { // it is never healthy
		_, err := etcdStatus(ctx, addr)
		return err
	}
	return Run(t, &kind)
}

// Stop stops all members.
func (c *EtcdCluster) Stop() error { return c.Members.Stop() }

func (c *EtcdCluster) all() Group { return c.Members }
