package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var listClauses = []clause{
	{
		id: "list-held", needs: []need{needLister},
		demand: `Lister.List: "yields every holder of every lock", each with its name, token, holder and what remains "until it expires unless it is renewed"`,
		pair: func(p *probe, a, b *peer) {
			req := p.request(p.name("x"), p.long)
			req.Holder = p.holder(`note with "quotes", 'these', \ and 雪`)
			before := time.Now()
			grant := a.acquire(req)
			info, ok := b.list(p.name(""))[req.Name]
			p.describes(info, ok, grant, req.Holder)
			if !info.Since.IsZero() && info.Since.Sub(before).Abs() > time.Hour {
				p.failf("granted at %v, listed as held since %v", before, info.Since)
			}
		},
	},
	{
		id: "list-prefix", needs: []need{needLister},
		demand: `Lister.List: "every lock whose name starts with prefix once", byte by byte, whatever the prefix means to the store's own query language`,
		pair: func(p *probe, a, b *peer) {
			root := p.name("")
			labels := []string{"a", "a/b", "ab", "A", "a%", "a_", "a*", "a?", "a[b]", `a\`, `a\b`, "a'", "aé", "ae\u0301", "a{b}", "axb", "a b", "a:b", "%", "_", "*"}
			for _, label := range labels {
				a.take(root+label, p.long)
			}
			for _, prefix := range append(labels, "", "a/", "A/", "no such name", "a[", "a{") {
				var want []string
				for _, label := range labels {
					if strings.HasPrefix(label, prefix) {
						want = append(want, root+label)
					}
				}
				slices.Sort(want)
				if got := slices.Sorted(maps.Keys(b.list(root + prefix))); !slices.Equal(got, want) {
					p.failf("prefix %q: want %q, got %q", root+prefix, want, got)
				}
			}
		},
	},
	{
		id: "list-gone", needs: []need{needLister},
		demand: `Lister.List: "yields every holder of every lock": none that was released, none that has expired`,
		pair: func(p *probe, a, b *peer) {
			sent := time.Now()
			released, expired := a.take(p.name("released"), p.long), a.take(p.name("expired"), p.ttl)
			p.before(sent.Add(expired.TTL), func() {
				if n := len(b.list(p.name(""))); n != 2 {
					p.failf("two locks are held, %d are listed", n)
				}
			})
			a.released(released)
			if _, ok := b.list(p.name(""))[released.Name]; ok {
				p.failf("a lock that was released is listed")
			}
			p.outlast(p.ttl)
			var left map[string]driver.Info
			p.eventually(p.onTime, func() bool { left = b.list(p.name("")); return len(left) == 0 }, func() string {
				return fmt.Sprintf("all locks are released or expired, listed are %v", slices.Collect(maps.Keys(left)))
			})
		},
	},
	{
		id: "list-renewed", needs: []need{needLister},
		demand: `Info.Remaining: "until it expires unless it is renewed"; a renewal keeps the token and the holder`,
		pair: func(p *probe, a, b *peer) {
			grant := a.take(p.name("x"), p.long)
			p.wait(p.ttl)
			before := b.list(grant.Name)[grant.Name]
			renewed := time.Now()
			a.renewed(grant, "it is held")
			after := b.list(grant.Name)[grant.Name]
			if after.Token != before.Token || after.Holder != before.Holder {
				p.failf("a renewal made token %d and holder %v of token %d and holder %v", after.Token, after.Holder, before.Token, before.Holder)
			}
			p.before(renewed.Add(p.ttl), func() {
				if after.Remaining < before.Remaining {
					p.failf("listed as having %v left before it was renewed for %v, and %v afterwards", before.Remaining, grant.TTL, after.Remaining)
				}
			})
		},
	},
	{
		id: "find", needs: []need{needLister, needFinder},
		demand: `Finder.Find: "describes the lock of name as List does", exactly that name; "returns false if the lock is not held"`,
		pair: func(p *probe, a, b *peer) {
			name := p.name("x")
			longer := a.take(name+"y", p.long)
			b.notFound(name, "only a longer name is held")
			req := p.request(name, p.long)
			req.Holder = p.holder("of the shorter name")
			grant := a.acquire(req)
			info, ok, err := b.Store.(driver.Finder).Find(p.ctx, name)
			if err != nil {
				p.failf("Find of %q: %v", name, err)
			}
			p.describes(info, ok, grant, req.Holder)
			if want := b.list(name)[name]; info.Since.IsZero() != want.Since.IsZero() {
				p.failf("listed is %+v, found is %+v", want, info)
			}
			a.released(grant)
			b.notFound(name, "it was released")
			a.released(longer)
		},
	},
}

// describes demands that info is about a lock that was granted a moment ago for p.long.
func (p *probe) describes(info driver.Info, found bool, grant driver.Grant, holder driver.Holder) {
	switch {
	case !found:
		p.failf("%q is held and not found", grant.Name)
	case info.Name != grant.Name || !p.belongs(info.Token, grant) || info.Holder != holder:
		p.failf("%q has token %d and holder %+v, found is %+v", grant.Name, grant.Token, holder, info)
	case info.Remaining < p.long/2 || info.Remaining > p.long+p.traits.Granularity:
		p.failf("granted a moment ago for %v, found as having %v left", p.long, info.Remaining)
	}
}

func (c *peer) notFound(name, because string) {
	if info, ok, err := c.Store.(driver.Finder).Find(c.p.ctx, name); ok || err != nil {
		c.p.failf("Find of %q: want nothing (%s), got: %+v, %v", name, because, info, err)
	}
}

// list demands a list without errors and repetitions.
func (c *peer) list(prefix string) map[string]driver.Info {
	infos := make(map[string]driver.Info)
	for info, err := range c.Store.(driver.Lister).List(c.p.ctx, prefix) {
		if err != nil {
			c.p.failf("List of %q: %v", prefix, err)
		}
		if _, twice := infos[info.Name]; twice {
			c.p.failf("List of %q yields %q twice", prefix, info.Name)
		}
		infos[info.Name] = info
	}
	return infos
}

// listsHolders demands that each of several holders in mode is listed once.
func (p *probe) listsHolders(a, b *peer, mode driver.Mode) {
	name := p.name("x")
	var missing []driver.Grant
	for i := range 4 {
		req := p.in(mode, name)
		req.Holder = p.holder("a holder")
		missing = append(missing, []*peer{a, b}[i%2].acquire(req))
	}
	for info, err := range a.Store.(driver.Lister).List(p.ctx, name) {
		if err != nil {
			p.failf("List: %v", err)
		}
		known := slices.IndexFunc(missing, func(grant driver.Grant) bool { return p.belongs(info.Token, grant) })
		if known < 0 || info.Mode != mode || info.Name != name || info.Holder.Note != "a holder" || info.Remaining <= 0 {
			p.failf("List yields %+v, which is no holder in mode %v, or was listed before", info, mode)
		}
		missing = slices.Delete(missing, known, known+1)
	}
	if len(missing) > 0 {
		p.failf("%d of 4 holders are not listed", len(missing))
	}
}
