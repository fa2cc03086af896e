package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	if err := s.ensureConnected(ctx); err != nil {
		return nil, err
	}
	if _, err := s.get(ctx, s.queuePrefix("dlock"), clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		return nil, s.explain(ctx, err) // no quorum, or no permission to read
	}
	var findings []driver.Finding
	for _, check := range []func(context.Context) driver.Finding{s.checkServers, s.checkMembers, s.checkAlarms, s.checkCompaction, s.checkEncryption} {
		findings = append(findings, check(ctx))
		if ctx.Err() != nil {
			return nil, unanswered(ctx)
		}
	}
	return findings, nil
}

// notCheckable returns the finding of a check that failed, as for lack of a permission.
func notCheckable(check string, err error) driver.Finding {
	return finding.Warning(check, "Cannot be checked: %v.", err)
}

// checkServers asks every endpoint of the client.
func (s *Store) checkServers(ctx context.Context) driver.Finding {
	const check = "version"
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	var calls sync.WaitGroup
	var mu sync.Mutex
	var versions, silent, learners []string
	oldest := math.MaxInt
	for _, endpoint := range s.client.Endpoints() {
		calls.Go(func() {
			status, err := s.client.Status(ctx, endpoint)
			serves := err == nil && !status.IsLearner && s.memberServes(ctx, endpoint)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && status.IsLearner:
				learners = append(learners, endpoint)
			case !serves:
				silent = append(silent, endpoint)
			}
			if err == nil {
				versions = append(versions, status.Version)
				oldest = min(oldest, minorVersion(status.Version))
			}
		})
	}
	calls.Wait()
	if len(versions) == 0 {
		return notCheckable(check, errors.New("no endpoint reports its status"))
	}
	slices.Sort(versions)
	name := "etcd " + strings.Join(slices.Compact(versions), ", ")
	f := finding.OK(check, "%s", name)
	switch {
	case oldest < 304:
		f = finding.Problem(check, "%s is too old: 3.4 is needed.", name)
	case oldest < 305:
		f = finding.Warning(check, "%s works, but is not maintained any more: 3.5 or newer is recommended.", name)
	}
	if len(silent)+len(learners) > 0 && f.Level == driver.LevelOK {
		f.Level = driver.LevelWarning
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		f.Message += fmt.Sprintf(" These endpoints do not answer: %s.", strings.Join(silent, ", "))
	}
	if len(learners) > 0 {
		slices.Sort(learners)
		f.Message += fmt.Sprintf(" These endpoints are learners, which serve no locks: leave out %s.", strings.Join(learners, ", "))
	}
	return f
}

// memberServes reports whether an endpoint answers a request that needs a leader.
func (s *Store) memberServes(ctx context.Context, endpoint string) bool {
	c, _ := s.dialMember(ctx, endpoint)
	if c != nil {
		c.close()
	}
	return c != nil
}

// minorVersion returns 304 for version 3.4.23, and zero for what is not a version.
func minorVersion(version string) int {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	return 100*major + minor
}

func (s *Store) checkMembers(ctx context.Context) driver.Finding {
	const check = "members"
	reply, _, err := retry(ctx, s, func(ctx context.Context, _ *conn) (*clientv3.MemberListResponse, error) {
		return s.client.MemberList(ctx)
	})
	if err != nil {
		return notCheckable(check, err)
	}
	voters := len(slices.DeleteFunc(reply.Members, func(m *pb.Member) bool { return m.IsLearner }))
	switch {
	case voters == 1:
		return finding.Breaking(driver.PromiseFailover,
			finding.Warning(check, "One member: locks survive its restart, and none is granted while it is down. Three are usual."))
	case voters%2 == 0:
		return finding.Warning(check, "%d members tolerate the failure of %d, as %d would: add one.", voters, (voters-1)/2, voters-1)
	}
	return finding.OK(check, "%d members: locks survive the loss of %d.", voters, voters/2)
}

func (s *Store) checkAlarms(ctx context.Context) driver.Finding {
	const check = "alarms"
	reply, _, err := retry(ctx, s, func(ctx context.Context, _ *conn) (*clientv3.AlarmResponse, error) { return s.client.AlarmList(ctx) })
	if err != nil {
		return notCheckable(check, err)
	}
	if len(reply.Alarms) == 0 {
		return finding.OK(check, "No alarms.")
	}
	var alarms []string
	for _, alarm := range reply.Alarms {
		alarms = append(alarms, alarm.Alarm.String())
	}
	slices.Sort(alarms)
	return finding.Problem(check, "The alarm %s is raised: no lock can be taken. "+
		"For NOSPACE compact and defragment, raise the quota, then disarm it.", strings.Join(slices.Compact(alarms), ", "))
}

// manyRevisions is after how many revisions a server should have compacted some. Each lock and each
// unlock is one.
const manyRevisions = 10_000

// checkCompaction asks for the first revision, because a server does not report how it is
// configured: one that never compacts still has it.
func (s *Store) checkCompaction(ctx context.Context) driver.Finding {
	const check = "compaction"
	reply, err := s.get(ctx, s.queuePrefix("dlock"), clientv3.WithCountOnly(), clientv3.WithRev(1))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return finding.OK(check, "Old revisions are compacted.")
	case err != nil:
		return notCheckable(check, err)
	case reply.Header.Revision < manyRevisions:
		return finding.OK(check, "The server is young: whether it compacts old revisions cannot be seen yet. "+
			"It has to be started with --auto-compaction-retention.")
	}
	return finding.Warning(check, "None of %d revisions has been compacted. A server that never compacts runs out of space, "+
		"and then no lock can be taken. Start it with --auto-compaction-retention.", reply.Header.Revision)
}

// checkEncryption asks for the connection that the store uses now.
func (s *Store) checkEncryption(ctx context.Context) driver.Finding {
	server, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (server peer.Peer, err error) {
		_, err = c.status.Status(ctx, &pb.StatusRequest{}, grpc.Peer(&server))
		return server, err
	})
	if server.Addr == nil {
		return notCheckable("encryption", err)
	}
	_, encrypted := server.AuthInfo.(credentials.TLSInfo)
	return finding.Encryption(encrypted, server.Addr.String(), "Set tls=true in the URL, or TLS in the client's configuration.")
}
