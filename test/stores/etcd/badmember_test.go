package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// behindProxies returns a proxy for each server, and a store over a client without keep-alives, which
// is connected to all of them.
func behindProxies(t *testing.T, members ...*servers.Server) ([]*proxy.Proxy, *etcdlock.Store) {
	t.Helper()
	var proxies []*proxy.Proxy
	var addrs []string
	for _, member := range members {
		p := proxy.Run(t, member.Addr())
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	client := clientOfAll(t, addrs)
	return proxies, closedAtEnd(t, want.Value(etcdlock.New(client, nil))(t))
}

// clientOfAll returns a client that is connected to all addresses.
func clientOfAll(t *testing.T, addrs []string) *clientv3.Client {
	t.Helper()
	client := rawClient(t, "etcd://"+strings.Join(addrs, ","))
	asked := make(map[string]bool)
	await.Until(t, "the client asks all members", func() bool {
		var member peer.Peer
		_, err := pb.NewMaintenanceClient(client.ActiveConnection()).Status(t.Context(), &pb.StatusRequest{}, grpc.Peer(&member))
		if err == nil {
			asked[member.Addr.String()] = true
		}
		return len(asked) == len(addrs)
	})
	return client
}

// pair acquires and releases a lock, and returns how long that took.
func pair(t *testing.T, store driver.Store, name string) time.Duration {
	t.Helper()
	start := time.Now()
	want.Release(t, store, want.Acquire(t, store, request(name)))
	return time.Since(start)
}

// TestBadMembers: members that do not answer, answer slowly or serve no locks.
func TestBadMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.RunEtcdCluster(t, nil)
	t.Run("learner", func(t *testing.T) { t.Parallel(); learnerIsNoEndpoint(t, cluster) })
	t.Run("silent", func(t *testing.T) { t.Parallel(); silentMemberIsLeft(t, cluster) })
	t.Run("slow", func(t *testing.T) { t.Parallel(); slowAnswersAreAnswers(t, cluster) })
}

// silentMemberIsLeft checks that a member that accepts connections and does not answer delays
// the calls that are under way when the store finds that out, and no others.
func silentMemberIsLeft(t *testing.T, cluster *servers.EtcdCluster) {
	proxies, store := behindProxies(t, cluster.Members...)
	proxies[0].Hold()
	defer proxies[0].Deliver()
	slow := 0
	var took []time.Duration
	for i := range 60 {
		pairTook := pair(t, store, fmt.Sprint("silent ", i))
		took = append(took, pairTook)
		if pairTook > time.Second {
			slow++
		}
		if slow > 6 { // each third request of a store that goes on asking the member is slow
			t.Errorf("%d of %d pairs of acquire and release took more than a second", slow, i+1)
			break
		}
	}
	slices.Sort(took)
	t.Logf("p50 %v, p99 %v, n=%d slow=%d", took[len(took)/2], took[len(took)*99/100], len(took), slow)
	var all sync.WaitGroup
	for range 8 { // some of them would ask the silent member
		all.Go(func() { wantNamed(t, store, proxies[0].Addr(), "do not answer") })
	}
	all.Wait()
}

// slowAnswersAreAnswers checks that a cluster grants locks that needs longer for each answer than a
// member has before another one is asked.
func slowAnswersAreAnswers(t *testing.T, cluster *servers.EtcdCluster) {
	proxies, store := behindProxies(t, cluster.Members...)
	const delay = 850 * time.Millisecond // in each direction
	for _, p := range proxies {
		p.Delay(delay)
		defer p.Delay(0)
	}
	t.Logf("acquired and released in %v", pair(t, store, "slow"))
}

// learnerIsNoEndpoint checks that a learner among the endpoints, which rejects all requests for locks,
// fails no call, and that Diagnose names it.
func learnerIsNoEndpoint(t *testing.T, cluster *servers.EtcdCluster) {
	proxies, store := behindProxies(t, append(slices.Clone(cluster.Members), cluster.AddLearner(t))...)
	req := request("renewed")
	req.TTL = 2 * time.Second
	grant := want.Acquire(t, store, req)
	renewAgain := time.NewTicker(req.TTL / 9) // more often the store only checks the key
	defer renewAgain.Stop()
	for i := range 8 {
		pair(t, store, fmt.Sprint("learner ", i))
		want.Renew(t, store, "beside a learner", grant)
		<-renewAgain.C
	}
	wantNamed(t, store, proxies[3].Addr(), "learners")
	var addrs []string
	for _, p := range proxies {
		addrs = append(addrs, p.Addr())
	}
	client := clientOfAll(t, addrs)
	for range 20 { // each begins at the next member
		store := want.Value(etcdlock.New(client, nil))(t)
		want.Value(store.Watch(t.Context(), request("watched"), func() {}))(t)()
		want.OK(t, store.Close())
	}
}

// wantNamed checks that Diagnose warns of an endpoint, and says why.
func wantNamed(t *testing.T, store driver.Diagnoser, endpoint, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	findings, err := store.Diagnose(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	if !slices.ContainsFunc(findings, func(f driver.Finding) bool {
		return f.Level == driver.LevelWarning && strings.Contains(f.Message, endpoint) && strings.Contains(f.Message, why)
	}) {
		t.Errorf("Diagnose: %+v; want a warning that names %s and says %q", findings, endpoint, why)
	}
}
