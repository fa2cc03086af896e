package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// maxRenewals limits the locks that one script renews: the server serves no other client while
// it runs.
const maxRenewals = 200

// Renew implements driver.Store. One script renews up to 200 locks, and all scripts for one
// server take one round trip.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.usable(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	clustered := s.clustered.Load()
	renewals := s.renewals(grants, clustered)
	errs := make([]error, len(grants))
	failed := false
	s.acked.sendRenewals(ctx, renewals, s.scripts.renew)
	for _, r := range renewals {
		if returned(r.err) && s.foundCluster(clustered, r.cmd.Err()) {
			return s.Renew(ctx, grants) // the server carried out nothing of this script
		}
		failed = r.report(errs) || failed
	}
	if !failed {
		return nil
	}
	return errs
}

// renewal is one script for several grants.
type renewal struct {
	keys []string
	args []any
	at   []int // the positions among all grants
	cmd  command
	err  error
}

// renewals divides the grants: by number, and in cluster mode by slot.
func (s *Store) renewals(grants []driver.Grant, clustered bool) []*renewal {
	var list []*renewal
	open := make(map[string]*renewal)
	for i, grant := range grants {
		key := s.keyOf(grant.Name)
		slot := ""
		if clustered {
			slot = hashTag(key)
		}
		r := open[slot]
		if r == nil || len(r.keys) == maxRenewals {
			r = &renewal{}
			open[slot] = r
			list = append(list, r)
		}
		r.keys = append(r.keys, key)
		r.args = append(r.args, millis(grant.TTL), grantPrefix(grant.Owner, lastToken(grant)))
		r.at = append(r.at, i)
	}
	return list
}

// sendRenewals sends each renewal to its server, to all servers at once: a server that hangs
// does not delay the others.
func (r *route) sendRenewals(ctx context.Context, renewals []*renewal, sc *script) {
	if r.cluster == nil {
		r.sendGroup(ctx, r.all, slices.Clone(renewals), sc, true)
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
		wg.Go(func() { r.sendGroup(ctx, sender, group, sc, true) })
	}
	wg.Wait()
}

// sendGroup sends the renewals of one server in one pipeline: by the script's hash or, if the
// server does not know it, by the source.
func (r *route) sendGroup(ctx context.Context, to *sender, renewals []*renewal, sc *script, known bool) {
	commands := make([]redis.Cmder, len(renewals))
	for i, one := range renewals {
		one.cmd = sc.command(ctx, known, one.keys, one.args)
		commands[i] = one.cmd
	}
	err := to.do(ctx, commands...)
	servers := r.allServers(ctx)
	var wg sync.WaitGroup
	for _, one := range renewals {
		switch one.err = err; {
		case r.redirected(err, one.cmd):
			wg.Go(func() { one.err = r.follow(ctx, one.cmd, servers) })
		case r.unsent(err, one.cmd):
			wg.Go(func() { one.err = r.do(ctx, one.keys[0], one.cmd) })
		}
	}
	wg.Wait()
	again := slices.DeleteFunc(renewals, func(one *renewal) bool {
		return !returned(one.err) || !isUnknownScript(one.cmd.Err())
	})
	if known && len(again) > 0 {
		r.sendGroup(ctx, to, again, sc, false)
	}
}

// report writes the outcome of each grant, and reports whether any failed.
func (r *renewal) report(errs []error) (failed bool) {
	gone, err := r.gone()
	for _, i := range r.at {
		errs[i] = err
	}
	for _, n := range gone {
		errs[r.at[n]] = fmt.Errorf("%w: %q", driver.ErrNotHeld, nameOf(r.keys[n]))
	}
	return err != nil || len(gone) > 0
}

// gone returns the indexes of the locks that were not renewed because they are not held. The
// error is that of all other locks.
func (r *renewal) gone() (indexes []int, err error) {
	if !returned(r.err) {
		return nil, r.err
	}
	if err := explain(r.cmd.Err()); err != nil {
		return nil, err
	}
	reply, isList := r.cmd.Val().([]any)
	for _, position := range reply {
		n, isNumber := position.(int64)
		if !isNumber || n < 1 || n > int64(len(r.at)) {
			isList = false
			break
		}
		indexes = append(indexes, int(n-1))
	}
	if !isList {
		return nil, fmt.Errorf("%w: %w: %v to a renewal", driver.ErrUnreachable, errReply, r.cmd.Val())
	}
	return indexes, r.err
}
