package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// maxRenewals limits the locks of one renewal script: the server serves no other client while
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
	errs, failed := make([]error, len(grants)), false
	s.acked.sendRenewals(ctx, renewals, s.scripts.renew)
	for _, r := range renewals {
		if returned(r.err) && s.foundCluster(clustered, r.cmd.Err()) {
			return s.Renew(ctx, grants) // the server carried out nothing of this script
		}
		failed = r.reportRenewal(errs) || failed
	}
	if !failed {
		return nil
	}
	return errs
}

// renewals divides the grants: by number, and in cluster mode by slot.
func (s *Store) renewals(grants []driver.Grant, clustered bool) []*scriptRun {
	var list []*scriptRun
	open := make(map[string]*scriptRun)
	for i, grant := range grants {
		key := s.keyOf(grant.Name)
		slot := ""
		if clustered {
			slot = hashTag(key)
		}
		r := open[slot]
		if r == nil || len(r.keys) == maxRenewals {
			r = &scriptRun{}
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
func (r *route) sendRenewals(ctx context.Context, renewals []*scriptRun, sc *script) {
	if r.cluster == nil {
		r.evalAll(ctx, r.all, sc, renewals)
		return
	}
	groups := make(map[*sender][]*scriptRun)
	for _, one := range renewals {
		sender, err := r.senderFor(ctx, one.keys[0])
		if one.err = err; err == nil {
			groups[sender] = append(groups[sender], one)
		}
	}
	var wg sync.WaitGroup
	for sender, group := range groups {
		wg.Go(func() { r.evalAll(ctx, sender, sc, group) })
	}
	wg.Wait()
}

// reportRenewal writes the outcome of each grant, and reports whether any failed.
func (r *scriptRun) reportRenewal(errs []error) (failed bool) {
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
func (r *scriptRun) gone() (indexes []int, err error) {
	if !returned(r.err) {
		return nil, r.err
	}
	if err := explain(r.cmd.Err()); err != nil {
		return nil, err
	}
	reply, valid := r.cmd.Val().([]any)
	for _, position := range reply {
		n, isNumber := position.(int64)
		valid = valid && isNumber && 1 <= n && n <= int64(len(r.at))
		indexes = append(indexes, int(n-1))
	}
	if !valid {
		return nil, fmt.Errorf("%w: %w: %v to a renewal", driver.ErrUnreachable, errReply, r.cmd.Val())
	}
	return indexes, r.err
}
