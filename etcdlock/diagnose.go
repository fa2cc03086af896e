package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if _, err := s.get(ctx, s.queueOf("dlock"), clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		return nil, s.explain(ctx, err) // no quorum, or no permission to read
	}
	var findings []driver.Finding
	for _, check := range []func(context.Context) driver.Finding{s.checkServers, s.checkMembers, s.checkAlarms, s.checkCompaction} {
		findings = append(findings, check(ctx))
		if ctx.Err() != nil {
			return nil, unanswered(ctx)
		}
	}
	return findings, nil
}

// hidden returns a finding about what the user may not see, or no server reports.
func hidden(check string, err error) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelWarning, Message: "Cannot be checked: " + err.Error() + "."}
}

// checkServers asks every endpoint of the client.
func (s *Store) checkServers(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: "version", Level: driver.LevelOK}
	var versions, unanswered []string
	for _, endpoint := range s.client.Endpoints() {
		status, err := s.client.Status(ctx, endpoint)
		if err != nil {
			unanswered = append(unanswered, endpoint)
			continue
		}
		versions = append(versions, status.Version)
	}
	if len(versions) == 0 {
		return hidden("version", errors.New("no endpoint reports its status"))
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	f.Message = "etcd " + strings.Join(versions, ", ")
	switch oldest := minorVersion(slices.MinFunc(versions, func(a, b string) int { return minorVersion(a) - minorVersion(b) })); {
	case oldest < 304:
		f.Level = driver.LevelProblem
		f.Message += " is too old: 3.4 is needed."
	case oldest < 305:
		f.Level = driver.LevelWarning
		f.Message += " works, but is not maintained any more: 3.5 or newer is recommended."
	}
	if len(unanswered) > 0 {
		if f.Level == driver.LevelOK {
			f.Level = driver.LevelWarning
		}
		f.Message += fmt.Sprintf(" These endpoints do not answer: %s.", strings.Join(unanswered, ", "))
	}
	return f
}

// minorVersion returns 304 for version 3.4.23, and zero for what is not a version.
func minorVersion(version string) int {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	return 100*major + minor
}

func (s *Store) checkMembers(ctx context.Context) driver.Finding {
	reply, err := s.client.MemberList(ctx)
	if err != nil {
		return hidden("members", err)
	}
	voters := len(slices.DeleteFunc(reply.Members, func(m *pb.Member) bool { return m.IsLearner }))
	f := driver.Finding{Check: "members", Level: driver.LevelOK}
	switch {
	case voters == 1:
		f.Level, f.Breaks = driver.LevelWarning, driver.PromiseFailover
		f.Message = "One member: locks survive its restart, and none is granted while it is down. Three are usual."
	case voters%2 == 0:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("%d members tolerate the loss of no more than %d do: add one.", voters, voters-1)
	default:
		f.Message = fmt.Sprintf("%d members: locks survive the loss of %d.", voters, voters/2)
	}
	return f
}

func (s *Store) checkAlarms(ctx context.Context) driver.Finding {
	reply, err := s.client.AlarmList(ctx)
	if err != nil {
		return hidden("alarms", err)
	}
	if len(reply.Alarms) == 0 {
		return driver.Finding{Check: "alarms", Level: driver.LevelOK, Message: "No alarms."}
	}
	var alarms []string
	for _, alarm := range reply.Alarms {
		alarms = append(alarms, alarm.Alarm.String())
	}
	slices.Sort(alarms)
	return driver.Finding{Check: "alarms", Level: driver.LevelProblem, Message: fmt.Sprintf(
		"The alarm %s is raised: no lock can be taken. For NOSPACE compact and defragment, raise the quota, then disarm it.",
		strings.Join(slices.Compact(alarms), ", "))}
}

// manyRevisions is after how many revisions a server should have compacted some. Each lock and each
// unlock is one.
const manyRevisions = 10_000

// checkCompaction asks for the first revision, because a server does not report how it is configured:
// one that never compacts still has it.
func (s *Store) checkCompaction(ctx context.Context) driver.Finding {
	const check = "compaction"
	f := driver.Finding{Check: check, Level: driver.LevelOK}
	reply, err := s.get(ctx, s.queueOf("dlock"), clientv3.WithCountOnly(), clientv3.WithRev(1))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		f.Message = "Old revisions are compacted."
	case err != nil:
		return hidden(check, err)
	case reply.Header.Revision < manyRevisions:
		f.Message = "The server is young: whether it compacts old revisions cannot be seen yet. It has to be started with --auto-compaction-retention."
	default:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("None of %d revisions has been compacted. A server that never compacts runs out of space, and then no lock can be taken. "+
			"Start it with --auto-compaction-retention.", reply.Header.Revision)
	}
	return f
}
