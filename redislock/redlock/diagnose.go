package redlock

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
)

// Diagnose implements driver.Diagnoser. It returns findings about the Redlock, and the
// findings of the members with their names.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.work.Done()
	findings, errs, err := gather(ctx, s, s.examine)
	if err != nil {
		return nil, err
	}
	var all []driver.Finding
	answered := len(s.members)
	for i, m := range s.members {
		if errs[i] != nil {
			answered--
			all = append(all, finding.Warning("reachable", "%s: %v", m.name, errs[i]))
		}
		for _, f := range findings[i] {
			f.Message = m.name + ": " + f.Message
			all = append(all, f)
		}
	}
	return append(s.findings(answered, all), all...), nil
}

// examine diagnoses one member. It may take longer than a call for a lock.
func (s *Store) examine(ctx context.Context, m *member) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, slowFactor*s.timeout)
	defer cancel()
	if err := m.identify(ctx); err != nil && s.sameServer() == nil {
		return nil, err
	}
	return m.store.Diagnose(ctx)
}

// findings returns the findings about the Redlock, after those of the members that answered.
func (s *Store) findings(answered int, ofMembers []driver.Finding) []driver.Finding {
	n := len(s.members)
	spare := answered - s.majority
	members := finding.OK("members", "All %d members answer, %d of them may fail.", n, spare)
	if answered < n {
		members = finding.Warning("members", "%d of %d members answer, and locks can be acquired while %d more fail.", answered, n, spare)
	}
	servers := finding.OK("servers", "No two members are known to be the same server.")
	if same := s.sameServer(); same != nil {
		servers = finding.Problem("servers", "%v", same)
	}
	restart := finding.OK("restart", "A member that crashes remembers its locks.")
	if slices.ContainsFunc(ofMembers, func(f driver.Finding) bool { return f.Breaks == driver.PromiseRestart }) {
		restart = finding.Warning("restart",
			"A member that crashes forgets its locks: keep it out for longer than the longest TTL before it is started again, or two may hold a lock.")
	}
	return []driver.Finding{members, servers, restart}
}
