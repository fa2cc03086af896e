package stories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/lab/stage"
)

// shopTask is the task of a process that sells.
type shopTask struct {
	Stock     place
	Processes int           // how many processes sell
	Think     time.Duration // from reading the stock to writing it
}

// shop is a process that sells.
type shop struct {
	shopTask
	*stage.Worker
	stock *stockTable
}

const (
	allConnections = 40 // of all shops to a database, which allows about 100
	hesitation     = 10 // how many times as long a buyer thinks about the last ones
)

// runShop is the program of a shop. It says its URL, and serves until its end.
func runShop(ctx context.Context, w *stage.Worker, task shopTask) error {
	stock, err := task.Stock.open(ctx, max(2, allConnections/task.Processes))
	if err != nil {
		return err
	}
	defer stock.db.Close()
	server := httptest.NewServer(&shop{task, w, stock})
	defer server.Close()
	w.Ready(server.URL)
	<-ctx.Done()
	return nil
}

// Answers of a shop.
const (
	statusSold    = http.StatusOK
	statusSoldOut = http.StatusGone
	statusRefused = http.StatusConflict // the lock was lost, and nothing was sold
	statusFailed  = http.StatusServiceUnavailable
)

var errSoldOut = errors.New("sold out")

// ServeHTTP sells one.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.sell(r.Context())
	status, text := statusSold, "OK"
	if err != nil {
		status, text = statusFailed, err.Error()
	}
	switch {
	case errors.Is(err, errSoldOut):
		status = statusSoldOut
	case errors.Is(err, fence.ErrStale), errors.Is(err, dlock.ErrLost):
		status = statusRefused
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// sell reads the stock, checks it, and writes it. The time from check to write makes the race.
func (s *shop) sell(ctx context.Context) error {
	held, err := s.Locker.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = held.Unlock(ctx) }() // a lock that cannot be released expires
	product := row{s.stock, held.Token()}
	v := stage.Visit{From: stage.Now(), Token: product.token, Text: "sold nothing"}
	defer func() {
		v.To = stage.Now()
		s.Visited(v)
	}()
	left, err := product.read(ctx)
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	if err := backoff.Sleep(ctx, s.thinkTime(left)); err != nil {
		return err
	}
	if !held.Believes() {
		return dlock.ErrLost
	}
	if err := product.take(ctx); err != nil {
		return err
	}
	v.Fell, v.Text = stage.Now(), "sold one"
	return nil
}

// thinkTime returns how long a buyer takes from reading the stock to paying. It varies, so
// that the processes do not run in step. About the last ones a buyer thinks so long that every
// process that is not kept out reads the same stock: so the race happens in every run.
func (s *shop) thinkTime(left int) time.Duration {
	usual := s.Think
	if left <= 2*s.Processes {
		usual *= hesitation
	}
	return usual/2 + rand.N(usual)
}
