package drivertest

import (
	"errors"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

var batchClauses = []clause{
	{
		id: "batch-all", needs: []need{needBatch},
		demand: `BatchAcquirer.AcquireAll: "acquires all requests or none"; "the grants are in the order of the requests"`,
		pair: func(p *probe, a, b *peer) {
			reqs := p.requests("c", "a", "b")
			grants, ok := a.all(reqs)
			if !ok {
				return
			}
			if len(grants) != len(reqs) {
				p.failf("%d grants for %d requests", len(grants), len(reqs))
			}
			for i, grant := range grants {
				if grant.Name != reqs[i].Name || grant.Owner != reqs[i].Owner || grant.Token == 0 {
					p.failf("request %d is for %q, grant %d is for %q with token %d", i, reqs[i].Name, i, grant.Name, grant.Token)
				}
				b.refused(grant.Name, "it was granted as one of three")
			}
			if errs := a.Renew(p.ctx, grants); errs != nil {
				p.failf("Renew of the three: %v", errs)
			}
			again, _ := a.all(reqs)
			for i := range again {
				if again[i].Token != grants[i].Token {
					p.failf("%q had token %d, its owner got %d for asking again", grants[i].Name, grants[i].Token, again[i].Token)
				}
			}
			last := make([]uint64, len(grants))
			for i, grant := range grants {
				last[i] = p.lastOf(grant.Token)
				a.released(grant)
				b.free(grant.Name, "it was released")
			}
			grants, _ = b.all(p.requests("c", "a", "b"))
			for i := range grants {
				if p.traits.Fencing != driver.FencingNone {
					p.rises(&last[i], grants[i].Token)
				}
			}
		},
	},
	{
		id: "batch-none", needs: []need{needBatch},
		demand: `BatchAcquirer.AcquireAll: "If a name is held, the error is a [*HeldError] for it", and no name was granted`,
		pair: func(p *probe, a, b *peer) {
			for i, label := range []string{"a", "b", "c"} {
				holder := a.take(p.name(label), p.long)
				reqs := p.requests("a", "b", "c")
				_, err := b.Store.(driver.BatchAcquirer).AcquireAll(p.ctx, reqs)
				if errors.Is(err, driver.ErrUnsupported) {
					a.released(holder)
					continue
				}
				held, ok := errors.AsType[*driver.HeldError](err)
				switch {
				case !ok:
					p.failf("%q is held by another owner: want a *HeldError, got: %v", holder.Name, err)
				case held.Name != holder.Name:
					p.failf("%q is held by another owner, the HeldError is about %q", holder.Name, held.Name)
				}
				for j, req := range reqs {
					if j != i {
						a.free(req.Name, "it is one of three, of which another was held, so that none is granted")
					}
				}
				a.renewed(holder, "a batch that failed must not touch it")
				a.released(holder)
			}
		},
	},
}

func (p *probe) requests(labels ...string) (reqs []driver.Request) {
	for _, label := range labels {
		reqs = append(reqs, p.request(p.name(label), p.long))
	}
	return reqs
}

// all demands the locks of all requests, unless the store cannot take just
// these names in one step.
func (c *peer) all(reqs []driver.Request) ([]driver.Grant, bool) {
	for _, req := range reqs {
		c.releaseAtEnd(req)
	}
	grants, err := c.Store.(driver.BatchAcquirer).AcquireAll(c.p.ctx, slices.Clone(reqs))
	if errors.Is(err, driver.ErrUnsupported) {
		return nil, false
	}
	if err != nil {
		c.p.failf("AcquireAll of %d names that are free: %v", len(reqs), err)
	}
	return grants, true
}
