package redlock

import (
	"context"
	"fmt"
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
	forgets := slices.ContainsFunc(all, func(f driver.Finding) bool { return f.Breaks == driver.PromiseRestart })
	return append(s.findings(answered, !forgets), all...), nil
}

// examine diagnoses one member. It may take longer than a call for a lock.
func (s *Store) examine(ctx context.Context, m *member) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, slowFactor*s.timeout, errUnanswered)
	defer cancel()
	if err := m.identify(ctx); err != nil && s.sameServer() == nil {
		return nil, err
	}
	findings, err := m.store.Diagnose(ctx)
	return findings, orUnanswered(ctx, err)
}

// findings returns the findings about the Redlock. remembers says that no member is
// configured to forget its locks in a crash.
func (s *Store) findings(answered int, remembers bool) (all []driver.Finding) {
	add := func(check string, ok bool, level driver.Level, good, bad string) {
		if ok {
			level, bad = driver.LevelOK, good
		}
		all = append(all, driver.Finding{Check: check, Level: level, Message: bad})
	}
	n := len(s.members)
	spare := answered - s.majority
	add("members", answered == n, driver.LevelWarning,
		fmt.Sprintf("All %d members answer, %d of them may fail.", n, spare),
		fmt.Sprintf("%d of %d members answer, and locks can be acquired while %d more fail.", answered, n, spare))
	same := s.sameServer()
	add("servers", same == nil, driver.LevelProblem,
		"No two members are known to be the same server.", fmt.Sprint(same))
	add("restart", remembers, driver.LevelWarning,
		"A member that crashes remembers its locks.",
		"A member that crashes forgets its locks: keep it out for longer than the longest TTL before it is started again, or two may hold a lock.")
	return all
}
