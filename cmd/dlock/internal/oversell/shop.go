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
	enter    doorman
	think    time.Duration
	lastOnes int

	mu     sync.Mutex
	visits []Visit
}

// Visit is the time that a request was between the guard's doors.
type Visit struct {
	From, To int64  // nanoseconds since 1970, by the machine's clock
	Sold     int64  // when the stock was written; 0 if it was not
	Token    uint64 // of the lock; 0 if there is none
}

// ShopOptions describe a shop.
type ShopOptions struct {
	Guard     Guard
	Processes int           // how many shops there are
	Think     time.Duration // from reading the stock to writing it
	Stock     *Stock
	Client    *dlock.Client // for guards that are shared
}

// NewShop returns a shop that is not open yet.
func NewShop(opts ShopOptions) (*Shop, error) {
	enter, err := newDoorman(opts.Guard, opts.Stock, opts.Client)
	if err != nil {
		return nil, err
	}
	return &Shop{enter: enter, think: opts.Think, lastOnes: 2 * opts.Processes}, nil
}

// Answers of a shop.
const (
	statusSold    = http.StatusOK
	statusSoldOut = http.StatusGone
	statusRefused = http.StatusConflict // the lock was lost, and nothing was sold
	statusFailed  = http.StatusServiceUnavailable
)

// errSoldOut: there is nothing left.
var errSoldOut = errors.New("sold out")

// reduce is the article's reduceStock: read, check, write. What happens between the
// check and the write is what makes it a race.
func (s *Shop) reduce(ctx context.Context) error {
	turn, err := s.enter(ctx)
	if err != nil {
		return err
	}
	visit := Visit{From: time.Now().UnixNano(), Token: turn.token}
	defer func() {
		visit.To = time.Now().UnixNano()
		s.note(visit)
		turn.leave()
	}()
	left, err := turn.row.read(turn.held)
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	if err := pause(ctx, turn.held, s.thinking(left)); err != nil {
		return err
	}
	if err := turn.row.take(turn.held); err != nil {
		return err
	}
	visit.Sold = time.Now().UnixNano()
	return nil
}

// hesitation is how many times as long a buyer takes for one of the last ones.
const hesitation = 10

// thinking is how long a buyer takes from seeing what is left to paying. It varies, so
// that the processes do not march in step, and it is long for the last ones, so that
// what a race does elsewhere now and then happens here each time: while one thinks
// about one of the last ones, every other process that is not kept out has time to
// come to its own read. At the end more of them have seen something left than there
// is.
func (s *Shop) thinking(left int) time.Duration {
	if s.think <= 0 {
		return 0
	}
	usual := s.think
	if left <= s.lastOnes {
		usual *= hesitation
	}
	return usual/2 + rand.N(usual)
}

// pause ends when the buyer goes, and when the guard is lost.
func pause(buyer, held context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-buyer.Done():
		return context.Cause(buyer)
	case <-held.Done():
		return context.Cause(held)
	}
}

func (s *Shop) note(visit Visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits = append(s.visits, visit)
}

// Visits are all so far.
func (s *Shop) Visits() []Visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Visit{}, s.visits...)
}

// ServeHTTP answers GET /stock/reduce?id=1.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/stock/reduce" || r.URL.Query().Get("id") != strconv.Itoa(productID) {
		http.NotFound(w, r)
		return
	}
	status, text := statusSold, "OK"
	switch err := s.reduce(r.Context()); {
	case err == nil:
	case errors.Is(err, errSoldOut):
		status, text = statusSoldOut, err.Error()
	case errors.Is(err, fence.ErrStale), errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
		status, text = statusRefused, err.Error()
	default:
		status, text = statusFailed, err.Error()
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// closingTime is how long requests may take that are there when a shop closes.
const closingTime = 2 * time.Second

// Open serves until the context ends, and calls opened with the address as soon as
// there is one.
func (s *Shop) Open(ctx context.Context, opened func(address string) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
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
