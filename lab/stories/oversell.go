package stories

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
)

var oversell = Story{
	Number: 29, Name: "oversell", TTL: 10 * time.Second,
	Title: "Several processes sell the same stock",
	Tells: "Five processes sell a stock of 40. Each is an HTTP service that reads the stock from the database, checks whether any is left, thinks for a while, and then reduces it; about the last ones it thinks ten times as long, so that the race is lost in every run. " +
		"The requests of 50 clients go to the processes in turn. Without a lock, and with a mutex in each process, more is sold than was there. With one lock for all processes exactly the stock is sold; with the fence, also when a holder is paused for too long.",
	Guards: []Case{caught("none", stage.TwoHolders), caught("local", stage.TwoHolders), {"dlock", []stage.Verdict{stage.Held}},
		{"fenced", []stage.Verdict{stage.Held}}},
	Play: func(s *stage.Stage) {
		o := s.Options
		o.Processes, o.Clients, o.Requests = cmp.Or(o.Processes, 5), cmp.Or(o.Clients, 50), cmp.Or(o.Requests, 10)
		o.Stock, o.Think = cmp.Or(o.Stock, 40), cmp.Or(o.Think, 20*time.Millisecond)
		if all := o.Clients * o.Requests; o.Stock >= all {
			s.Must(fmt.Errorf("--stock %d is outside 1 to %d: there are %d requests", o.Stock, all-1, all))
		}
		in, stock := newStock(s, o.Stock)
		shops := s.Programs(o.Processes, "shop", shopTask{in, o.Processes, o.Think})
		r := &sales{}
		s.Must(r.run(s, &o, shops))
		for _, shop := range shops {
			s.Must(shop.Stop())
		}
		left, err := stock.read(s.Context())
		s.Must(err)
		s.Figure("requests", r.requests)
		s.Figure("sold", r.sold)
		s.Figure("final_stock", left)
		s.Figure("at_once", s.AtOnce())
		s.Figure("seconds", r.elapsed.Round(time.Millisecond).Seconds())
		s.Detail("stock", o.Stock)
		s.Detail("refused", r.refused)
		s.Detail("processes", o.Processes)
		s.Detail("clients", o.Clients)
		if s.Ours() && (left != 0 || r.sold != o.Stock) {
			s.Must(fmt.Errorf("%d were sold, and %d are left: exactly %d should have been sold", r.sold, left, o.Stock))
		}
	},
}

// sales are what the clients know.
type sales struct {
	mu                      sync.Mutex
	requests, sold, refused int
	elapsed                 time.Duration
}

// run lets all clients send requests to the shops in turn, each one after the other, until all are answered
// or one has failed.
func (r *sales) run(s *stage.Stage, o *stage.Options, shops []*stage.Process) error {
	transport := &http.Transport{MaxIdleConnsPerHost: o.Clients}
	defer transport.CloseIdleConnections()
	var requests atomic.Uint64
	next := func() string { return shops[(requests.Add(1)-1)%uint64(len(shops))].Says }
	if o.Nginx {
		front, err := startNginx(s.Context(), s.Folder(), shops, o.Clients)
		if err != nil {
			return err
		}
		defer front.Kill() // its files are in the folder
		transport.DialContext = front.dial
		next = func() string { return "http://nginx" }
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	start := time.Now()
	for range o.Clients {
		all.Go(func() {
			for range o.Requests {
				if err := r.buy(ctx, client, next()); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	r.elapsed = time.Since(start)
	return context.Cause(ctx)
}

// buy sends a request.
func (r *sales) buy(ctx context.Context, client *http.Client, shop string) error {
	status, _, err := request(ctx, client, http.MethodPost, shop, "", statusSold, statusSoldOut, statusRefused)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	switch status {
	case statusSold:
		r.sold++
	case statusRefused:
		r.refused++
	}
	return nil
}
