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

// Renew starts the TTLs again, 200 locks with one command, all commands to a server
// in one round trip.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.usable(ctx); err != nil {
		return all(grants, err)
	}
	if len(grants) == 0 {
		return nil
	}
	slots := s.cluster.Load()
	renewals := s.renewals(grants, slots)
	errs := make([]error, len(grants))
	failed := false
	s.acked.sendRenewals(ctx, renewals, s.scripts.renew)
	for _, r := range renewals {
		if returned(r.err) && s.foundSlots(slots, r.cmd.Err()) {
			return s.Renew(ctx, grants) // none of this script was
		}
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
func (s *Store) renewals(grants []driver.Grant, slots bool) []*renewal {
	var list []*renewal
	open := make(map[string]*renewal)
	for i, grant := range grants {
		key := s.keyOf(grant.Name)
		slot := ""
		if slots {
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

// sendRenewals sends each to its server, at the same time, so that the answers of
// others count when one of them hangs.
func (r *route) sendRenewals(ctx context.Context, renewals []*renewal, sc *script) {
	if r.cluster == nil {
		r.sendGroup(ctx, r.all, renewals, sc)
		return
	}
	groups := make(map[*sender][]*renewal)
	for _, one := range renewals {
		sender, err := r.senderFor(ctx, one.keys[0])
		if one.err = err; err == nil {
			groups[sender] = append(groups[sender], one)
		}
	}
	var wg sync.WaitGroup
	for sender, group := range groups {
		wg.Go(func() { r.sendGroup(ctx, sender, group, sc) })
	}
	wg.Wait()
}

// sendGroup sends those of one server, which may have forgotten the script.
func (r *route) sendGroup(ctx context.Context, to *sender, renewals []*renewal, sc *script) {
	r.sendEach(ctx, to, renewals, sc.bySHA)
	var again []*renewal
	for _, one := range renewals {
		if returned(one.err) && forgotten(one.cmd.Err()) {
			again = append(again, one)
		}
	}
	if len(again) > 0 {
		r.sendEach(ctx, to, again, sc.bySource)
	}
}

// sendEach sends all renewals of a server together.
func (r *route) sendEach(ctx context.Context, to *sender, renewals []*renewal, build func(context.Context, []string, []any) command) {
	commands := make([]redis.Cmder, len(renewals))
	for i, one := range renewals {
		one.cmd = build(ctx, one.keys, one.args)
		commands[i] = one.cmd
	}
	err := to.do(ctx, commands...)
	nodes := r.nodes(ctx)
	var wg sync.WaitGroup
	for _, one := range renewals {
		switch one.err = err; {
		case r.redirected(err, one.cmd):
			wg.Go(func() { one.err = r.follow(ctx, one.cmd, nodes) })
		case r.unsent(err, one.cmd):
			wg.Go(func() { one.err = r.do(ctx, one.keys[0], one.cmd) })
		}
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
