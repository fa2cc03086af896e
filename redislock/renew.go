package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// maxRenewals limits the locks that one script renews: nobody else is served
// while it runs.
const maxRenewals = 200

// Renew starts the TTLs again, 200 locks with one command, all commands in one
// round trip.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.usable(ctx); err != nil {
		return all(grants, err)
	}
	if len(grants) == 0 {
		return nil
	}
	renewals := s.renewals(grants)
	errs := make([]error, len(grants))
	failed := false
	s.sendRenewals(ctx, renewals)
	for _, r := range renewals {
		failed = r.report(errs) || failed
	}
	if !failed {
		return nil
	}
	return errs
}

func all(grants []driver.Grant, err error) []error {
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// renewal is one script for several grants.
type renewal struct {
	keys   []string
	args   []any
	grants []driver.Grant
	at     []int // their places among all grants
	cmd    command
	err    error
}

// renewals divides the grants: by number, and in a cluster by slot.
func (s *Store) renewals(grants []driver.Grant) []*renewal {
	var list []*renewal
	open := make(map[string]*renewal)
	for i, grant := range grants {
		key := s.keyOf(grant.Name)
		slot := ""
		if s.cluster {
			slot = hashTag(key)
		}
		r := open[slot]
		if r == nil || len(r.keys) == maxRenewals {
			r = &renewal{}
			open[slot] = r
			list = append(list, r)
		}
		r.keys = append(r.keys, key)
		r.args = append(r.args, millis(grant.TTL), markPrefix(grant.Owner, grant.Token))
		r.grants = append(r.grants, grant)
		r.at = append(r.at, i)
	}
	return list
}

func (s *Store) sendRenewals(ctx context.Context, renewals []*renewal) {
	s.sendEach(ctx, renewals, s.scripts.renew.bySHA)
	var again []*renewal
	for _, r := range renewals {
		if returned(r.err) && forgotten(r.cmd.Err()) {
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		s.sendEach(ctx, again, s.scripts.renew.bySource)
	}
}

// sendEach sends all renewals together. In a cluster where replicas have to
// acknowledge, each goes to its own server, at the same time.
func (s *Store) sendEach(ctx context.Context, renewals []*renewal, build func(context.Context, []string, []any) command) {
	commands := make([]redis.Cmder, len(renewals))
	for i, r := range renewals {
		r.cmd = build(ctx, r.keys, r.args)
		commands[i] = r.cmd
	}
	if !s.cluster || s.replicas == 0 {
		sender, err := s.senderFor(ctx, renewals[0].keys[0])
		if err == nil {
			err = sender.do(ctx, commands...)
		}
		for _, r := range renewals {
			r.err = err
		}
		return
	}
	var wg sync.WaitGroup
	for _, r := range renewals {
		wg.Go(func() {
			sender, err := s.senderFor(ctx, r.keys[0])
			if err == nil {
				err = sender.do(ctx, r.cmd)
			}
			r.err = err
		})
	}
	wg.Wait()
}

// report writes the outcome for each grant, and says whether any failed.
func (r *renewal) report(errs []error) (failed bool) {
	err := r.err
	if returned(err) {
		if failed := explain(r.cmd.Err()); failed != nil {
			err = failed
		}
	}
	if err != nil && !errors.Is(err, ErrNotReplicated) {
		for _, i := range r.at {
			errs[i] = err
		}
		return true
	}
	if err != nil {
		for _, i := range r.at {
			errs[i] = fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
		}
	}
	gone, _ := r.cmd.Val().([]any)
	for _, position := range gone {
		n, _ := position.(int64)
		errs[r.at[n-1]] = fmt.Errorf("%w: %q", driver.ErrNotHeld, r.grants[n-1].Name)
	}
	return err != nil || len(gone) > 0
}
