package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// nothingLeft runs after all other clauses, when all their stores are closed.
var nothingLeft = clause{
	id:     "nothing-left",
	demand: `Store.Close: "frees what the store itself opened and waits for its background work"; released and expired locks are not listed, and nothing else stays in the store`,
	check: func(p *probe) {
		var left []string
		p.eventually(p.onTime, func() bool {
			now := p.leftovers()
			if len(now) > 0 {
				left = now
			}
			return len(now) == 0
		}, func() string { return "left behind: " + strings.Join(left, "; ") })
	},
}

func (p *probe) leftovers() (left []string) {
	if n, stack := p.goroutines(); n > 0 {
		return []string{fmt.Sprintf("%d goroutines of closed stores, such as\n%s", n, stack)} // further checks would start more
	}
	if p.Config.Leftovers != nil {
		more, err := p.Config.Leftovers(p.ctx)
		if err != nil {
			p.failf("Config.Leftovers: %v", err)
		}
		left = append(left, more...)
	}
	if !offers[driver.Lister](p.setup) {
		return left
	}
	store, err := p.Open(p.ctx)
	if err != nil {
		p.failf("Open: %v", err)
	}
	defer func() { _ = store.Close() }() // the next call checks what Close leaves
	for info, err := range store.(driver.Lister).List(p.ctx, p.prefix) {
		if err != nil {
			p.failf("List: %v", err)
		}
		left = append(left, fmt.Sprintf("%q, token %d, remaining %v", info.Name, info.Token, info.Remaining))
	}
	return left
}

// Every goroutine that a store starts inherits the label of the clause that
// opened it, so that it differs from those of other tests.
const labelKey = "drivertest"

// goroutines counts the goroutines of this run except the calling one, and shows one.
func (p *probe) goroutines() (n int, stack string) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		p.failf("goroutine profile: %v", err)
	}
	mark := fmt.Sprintf("%q:%q", labelKey, p.runID)
	_, groups, _ := strings.Cut(profile.String(), "\n") // the first line is a title
	for group := range strings.SplitSeq(groups, "\n\n") {
		if !strings.Contains(group, mark) || strings.Contains(group, "drivertest.(*probe).goroutines") {
			continue
		}
		var count int
		if _, err := fmt.Sscanf(group, "%d @", &count); err == nil {
			n, stack = n+count, group
		}
	}
	return n, stack
}

// labelled resolves cfg in such a way that what the first store starts is
// counted too.
func labelled(ctx context.Context, cfg Config) (s *setup, err error) {
	if os.Getenv(WorkEnv) != "" { // it would start workers without end, each of which starts others
		return nil, fmt.Errorf("this process is a worker of the kit: TestMain has to call drivertest.Work where %s is set", WorkEnv)
	}
	run := driver.NewOwner().Hex()[:8]
	pprof.Do(ctx, pprof.Labels(labelKey, run), func(ctx context.Context) { s, err = cfg.resolve(ctx, run) })
	return s, err
}
