// Package oversell is a scenario in which stock is sold below zero: several processes of
// one service behind a balancer each read the stock, check it, and then write it.
package oversell

import (
	"cmp"
	"context"
	"slices"
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

	// Start starts the process of a shop. It sends its address, and its []Visit after its
	// input was closed.
	Start func(ctx context.Context, guard Guard) (*child.Process, error)

	// Nginx is the path of nginx; empty: the built-in proxy.
	Nginx           string
	NginxAttributes *syscall.SysProcAttr // of its process
	Folder          string               // for its files

	// Progress is called after each request, concurrently.
	Progress func(sold bool)
}

// Result is the outcome of one run.
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

// Rate returns the requests per second.
func (r *Result) Rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// Run fills the stock and sells it with a guard. When it returns, no process runs any more.
func (s *Scenario) Run(ctx context.Context, guard Guard) (*Result, error) {
	if err := s.Stock.Restock(ctx, s.InStock); err != nil {
		return nil, err
	}
	shops, err := child.StartGroup(s.Processes, func() (*child.Process, error) { return s.Start(ctx, guard) })
	defer shops.Wait()
	if err != nil {
		return nil, err
	}
	addresses, err := child.ReceiveAll[string](shops)
	if err != nil {
		return nil, err
	}
	t, err := s.sell(ctx, addresses)
	if err != nil {
		return nil, err
	}
	for _, shop := range shops {
		shop.CloseInput()
	}
	visits, err := child.ReceiveAll[[]Visit](shops)
	if err != nil {
		return nil, err
	}
	for _, v := range visits {
		slices.SortFunc(v, func(a, b Visit) int { return cmp.Compare(a.From, b.From) })
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

// sell runs the clients, which reach the shops through the balancer.
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
	clients := load{clients: s.Clients, requests: s.Requests, dial: front.dial, done: s.Progress}
	return clients.run(ctx)
}
