// Package oversell is the scenario of the article in which stock is sold below
// zero: several processes of one service behind a balancer, of which each reads the
// stock, checks it, and then writes it.
package oversell

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
)

// Scenario is what all runs share.
type Scenario struct {
	Processes int
	Clients   int
	Requests  int // of each client
	InStock   int

	Stock *Stock

	// Hire starts the process of a shop, which answers with its address, and after
	// it was dismissed with its []Visit.
	Hire func(ctx context.Context, guard Guard) (*child.Process, error)

	// Nginx is the path of nginx; without one the proxy is built in.
	Nginx           string
	NginxAttributes *syscall.SysProcAttr // how its process is started
	Folder          string               // for its files

	// Progress is called after each request, by many goroutines.
	Progress func(sold bool)
}

// Result is what came of one run.
type Result struct {
	Guard      Guard
	Requests   int
	Sold       int // by the answers that the clients got
	Refused    int // because a lock was lost
	FinalStock int // by the database
	Elapsed    time.Duration
	P50, P99   time.Duration // of the time that clients waited for their answers
	Visits     [][]Visit     // of each process, sorted
}

// Rate is in requests a second.
func (r *Result) Rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// Run fills the stock and sells it with a guard. When it returns nothing runs any
// more.
func (s *Scenario) Run(ctx context.Context, guard Guard) (*Result, error) {
	if err := s.Stock.Restock(ctx, s.InStock); err != nil {
		return nil, err
	}
	shops, err := s.hire(ctx, guard)
	defer shops.close()
	if err != nil {
		return nil, err
	}
	t, err := s.sell(ctx, shops.addresses)
	if err != nil {
		return nil, err
	}
	visits, err := shops.report()
	if err != nil {
		return nil, err
	}
	left, err := s.Stock.Left(ctx)
	if err != nil {
		return nil, err
	}
	return &Result{
		Guard:      guard,
		Requests:   len(t.waits),
		Sold:       t.sold,
		Refused:    t.refused,
		FinalStock: left,
		Elapsed:    t.elapsed,
		P50:        t.percentile(50),
		P99:        t.percentile(99),
		Visits:     visits,
	}, nil
}

// sell lets the clients in, through the balancer.
func (s *Scenario) sell(ctx context.Context, addresses []string) (*tally, error) {
	var front balancer
	var err error
	if s.Nginx != "" {
		front, err = startNginx(ctx, s.Nginx, s.Folder, s.NginxAttributes, addresses, s.Clients)
	} else {
		front, err = startProxy(ctx, addresses, s.Clients)
	}
	if err != nil {
		return nil, err
	}
	defer front.close()
	crowd := load{clients: s.Clients, requests: s.Requests, dial: front.dial, done: s.Progress}
	return crowd.run(ctx)
}

// chain is the processes of one run.
type chain struct {
	processes []*child.Process
	addresses []string
}

// hire starts all shops and waits until they are open. Those that it could start
// are there even if it fails.
func (s *Scenario) hire(ctx context.Context, guard Guard) (*chain, error) {
	c := &chain{}
	for range s.Processes {
		process, err := s.Hire(ctx, guard)
		if err != nil {
			return c, err
		}
		c.processes = append(c.processes, process)
	}
	for _, process := range c.processes {
		var address string
		if err := process.Hear(&address); err != nil {
			return c, cmp.Or(context.Cause(ctx), err)
		}
		c.addresses = append(c.addresses, address)
	}
	return c, nil
}

// report closes the shops and returns their visits.
func (c *chain) report() ([][]Visit, error) {
	for _, process := range c.processes {
		process.Dismiss()
	}
	var all [][]Visit
	for _, process := range c.processes {
		var visits []Visit
		if err := process.Hear(&visits); err != nil {
			return nil, err
		}
		slices.SortFunc(visits, func(a, b Visit) int { return cmp.Compare(a.From, b.From) })
		all = append(all, visits)
	}
	return all, nil
}

// close ends all processes and waits for that.
func (c *chain) close() {
	var all sync.WaitGroup
	for _, process := range c.processes {
		all.Go(process.Wait)
	}
	all.Wait()
}
