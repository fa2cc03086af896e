package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// maxRenewals limits the locks of one renewal script: the server serves no other client while
// it runs.
const maxRenewals = 200

// Renew implements driver.Store. One script renews up to 200 locks, and all scripts for one
// server take one round trip.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.begin(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	clustered := s.clustered.Load()
	renewals := s.renewals(grants, clustered)
	errs := make([]error, len(grants))
	s.ackedRoute.sendRenewals(ctx, renewals, s.scripts.renew)
	for _, r := range renewals {
		if haveResults(r.err) && s.foundCluster(clustered, r.cmd.Err()) {
			return s.Renew(ctx, grants) // the server carried out nothing of this script
		}
		r.reportRenewal(errs)
	}
	if clustered && s.protocol == Redisson {
		s.renewMoving(ctx, grants, errs)
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// renewMoving tries again to renew the grants that are not held. While a hash slot moves to another
// server of a cluster, the lock and the key of a share may be on different servers, and the share
// seems to have expired. Given both keys, the servers refuse the script.
func (s *Store) renewMoving(ctx context.Context, grants []driver.Grant, errs []error) {
	var again []*scriptRun
	for i, grant := range grants {
		if errors.Is(errs[i], driver.ErrNotHeld) {
			key := s.keyOf(grant.Name)
			keys := []string{key, shareOf(key, grant.Owner)}
			again = append(again, &scriptRun{keys: keys, args: s.renewalArgs(grant), at: []int{i}})
		}
	}
	s.ackedRoute.sendRenewals(ctx, again, s.scripts.renew)
	for _, r := range again {
		r.reportRenewal(errs)
	}
}

func (s *Store) renewalArgs(grant driver.Grant) []any {
	return []any{millis(grant.TTL), s.prefixOf(grant)}
}

// renewals divides the grants: by number, and in cluster mode by hash tag.
func (s *Store) renewals(grants []driver.Grant, clustered bool) []*scriptRun {
	var list []*scriptRun
	open := make(map[string]*scriptRun)
	for i, grant := range grants {
		key := s.keyOf(grant.Name)
		tag := ""
		if clustered {
			tag = hashTag(key)
		}
		r := open[tag]
		if r == nil || len(r.keys) == maxRenewals {
			r = &scriptRun{}
			open[tag] = r
			list = append(list, r)
		}
		r.keys = append(r.keys, key)
		r.args = append(r.args, s.renewalArgs(grant)...)
		r.at = append(r.at, i)
	}
	return list
}

// errOthersAnswered: the caller waits no longer for a server that may hang.
var errOthersAnswered = fmt.Errorf("%w: this server has not answered, and others of the cluster have", driver.ErrUnreachable)

// sendRenewals sends each renewal to its server, to all servers at once. When a server has answered,
// it waits for the others for a quarter of the time at most: the outcome of a lock, for which its
// release waits, does not depend on a server that hangs.
func (r *route) sendRenewals(ctx context.Context, renewals []*scriptRun, sc *script) {
	if r.cluster == nil {
		r.evalAll(ctx, r.viaClient, sc, renewals)
		return
	}
	groups := make(map[*sender][]*scriptRun)
	for _, one := range renewals {
		sender, err := r.senderFor(ctx, one.keys[0])
		if one.err = err; err == nil {
			one.err = errOthersAnswered
			groups[sender] = append(groups[sender], one)
		}
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(errOthersAnswered)
	answers := make(chan func(), len(groups))
	for sender, group := range groups {
		copies := make([]*scriptRun, len(group)) // a call that is not waited for writes into them
		for i, one := range group {
			copies[i] = &scriptRun{keys: one.keys, args: one.args}
		}
		work := func() {
			r.evalAll(limited, sender, sc, copies)
			answers <- func() {
				for i, one := range group {
					one.cmd, one.err = copies[i].cmd, copies[i].err
				}
			}
		}
		if !r.tasks.start(work) {
			answers <- func() {
				for _, one := range group {
					one.err = driver.ErrClosed
				}
			}
		}
	}
	var late <-chan time.Time // nil until a server has answered, and without a deadline
	for range groups {
		select {
		case answer := <-answers:
			answer()
		case <-late:
			return
		}
		if at, isLimited := ctx.Deadline(); isLimited && late == nil {
			late = time.After(time.Until(at) / 4)
		}
	}
}

// reportRenewal writes the outcome of each grant.
func (r *scriptRun) reportRenewal(errs []error) {
	gone, err := r.gone()
	for _, i := range r.at {
		errs[i] = err
	}
	for _, n := range gone {
		errs[r.at[n]] = fmt.Errorf("%w: %q", driver.ErrNotHeld, nameOf(r.keys[n]))
	}
}

// gone returns the indexes of the locks that were not renewed because they are not held. The
// error is that of all other locks.
func (r *scriptRun) gone() (indexes []int, err error) {
	if !haveResults(r.err) {
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
