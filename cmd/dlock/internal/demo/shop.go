package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/fence"
)

// Shop is one process of the service: GET /stock/reduce?id=1 sells one.
type Shop struct {
	Guard     Guard
	Processes int           // how many shops there are
	Think     time.Duration // from reading the stock to writing it
	Stock     *Stock
	Client    *dlock.Client // for guards that are shared

	mu     sync.Mutex
	visits []Visit
}

// Visit is the time of a request inside the guard.
type Visit struct {
	From, To int64  // Unix nanoseconds
	Sold     int64  // when the stock was written; 0 if it was not
	Token    uint64 // of the lock; 0 if there is none
}

// Answers of a shop.
const (
	statusSold    = http.StatusOK
	statusSoldOut = http.StatusGone
	statusRefused = http.StatusConflict // the lock was lost, and nothing was sold
	statusFailed  = http.StatusServiceUnavailable
)

var errSoldOut = errors.New("sold out")

// reduce reads the stock, checks it, and writes it. The time between the check and the
// write makes it a race.
func (s *Shop) reduce(inside *entry, ctx context.Context) error {
	visit := Visit{From: time.Now().UnixNano(), Token: inside.token}
	defer func() {
		visit.To = time.Now().UnixNano()
		s.mu.Lock()
		s.visits = append(s.visits, visit)
		s.mu.Unlock()
		inside.leave()
	}()
	left, err := inside.row.read(inside.held)
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	select {
	case <-time.After(s.thinkTime(left)):
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-inside.held.Done():
		return context.Cause(inside.held)
	}
	if err := inside.row.take(inside.held); err != nil {
		return err
	}
	visit.Sold = time.Now().UnixNano()
	return nil
}

// hesitation is how many times as long a buyer thinks about one of the last ones.
const hesitation = 10

// thinkTime returns how long a buyer takes from reading the stock to paying. It varies, so
// that the processes do not run in step. It is long for the last ones, so that the race
// happens in every run: while one buyer thinks, every process that is not kept out has time
// to read the stock. At the end more of them have read a positive stock than can be sold.
func (s *Shop) thinkTime(left int) time.Duration {
	if s.Think <= 0 {
		return 0
	}
	usual := s.Think
	if left <= 2*s.Processes {
		usual *= hesitation
	}
	return usual/2 + rand.N(usual)
}

// Visits returns all visits so far.
func (s *Shop) Visits() []Visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Visit{}, s.visits...)
}

// closingTime is how long pending requests may take when a shop closes.
const closingTime = 2 * time.Second

// Serve serves until ctx ends. It calls opened with the address.
func (s *Shop) Serve(ctx context.Context, opened func(address string) error) error {
	server, err := startServer(ctx, s.handler(), func() {})
	if err != nil {
		return err
	}
	defer server.close()
	if err := opened(server.address); err != nil {
		return err
	}
	select {
	case <-server.ended:
		return fmt.Errorf("serve: %w", server.err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTime)
	defer cancel()
	_ = server.Shutdown(closing) // close ends what is left
	return nil
}

// handler answers GET /stock/reduce?id=1.
func (s *Shop) handler() http.HandlerFunc {
	enter := newEnter(s.Guard, s.Stock, s.Client)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/stock/reduce" || r.URL.Query().Get("id") != strconv.Itoa(productID) {
			http.NotFound(w, r)
			return
		}
		inside, err := enter(r.Context())
		if err == nil {
			err = s.reduce(inside, r.Context())
		}
		status, text := statusSold, "OK"
		if err != nil {
			status, text = statusFailed, err.Error()
		}
		switch {
		case errors.Is(err, errSoldOut):
			status = statusSoldOut
		case errors.Is(err, fence.ErrStale), errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
			status = statusRefused
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, text)
	}
}

// shopRole is the argv[0] of a shop.
const shopRole = "dlock-demo-shop"

// allConnections is how many connections all shops together have to the database. Servers
// allow about a hundred.
const allConnections = 40

// runShop is the program of a shop.
func runShop(parent *child.Parent) error {
	var task shopTask
	if err := parent.Receive(&task); err != nil {
		return err
	}
	stock, client, closeAll, err := task.open(parent.Context, max(2, allConnections/task.Processes))
	if err != nil {
		return err
	}
	defer closeAll()
	shop := &Shop{Guard: task.Guard, Processes: task.Processes, Think: task.Think, Stock: stock, Client: client}
	if err := shop.Serve(parent.Context, func(address string) error { return parent.Send(address) }); err != nil {
		return err
	}
	return parent.Send(shop.Visits())
}
