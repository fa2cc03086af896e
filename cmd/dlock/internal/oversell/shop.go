package oversell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
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
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := opened(listener.Addr().String()); err != nil {
		_ = server.Close()
		return err
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTime)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		return server.Close()
	}
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
