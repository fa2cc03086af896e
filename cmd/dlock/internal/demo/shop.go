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

// Guard is how a shop keeps others out between reading the stock and writing it.
type Guard string

// The guards, in the order of the runs.
const (
	None   Guard = "none"   // no guard
	Local  Guard = "local"  // a mutex, which excludes the other requests of the same process
	Dlock  Guard = "dlock"  // a lock that all processes share
	Fenced Guard = "fenced" // the same lock, and a row that checks its token
)

// Guards are all guards.
var Guards = []Guard{None, Local, Dlock, Fenced}

// Shared reports whether the guard needs a store of locks.
func (g Guard) Shared() bool { return g == Dlock || g == Fenced }

// shopTask is the task of a process that sells. It may contain passwords.
type shopTask struct {
	Guard     Guard
	Database  string // the URL of --db
	Folder    string // of the SQLite file if there is no URL
	Table     string
	Store     Store
	Processes int           // how many processes sell
	Think     time.Duration // from reading the stock to writing it
	TTL       time.Duration // of the lock, for a buyer
}

type shop struct {
	shopTask
	stock  *stockTable
	client *dlock.Client // nil if the guard is not shared

	local sync.Mutex // of the guard Local
	mu    sync.Mutex
	log   processLog
}

const (
	allConnections = 40              // of all shops to a database, which allows about 100
	closingTime    = 2 * time.Second // for pending requests when a shop closes
	hesitation     = 10              // how many times as long a buyer thinks about the last ones
)

// openShop receives the task of a process and opens what it needs. The second result closes it.
func openShop(parent *child.Parent) (*shop, func(), error) {
	s := &shop{}
	if err := parent.Receive(&s.shopTask); err != nil {
		return nil, nil, err
	}
	db, err := openDatabase(parent.Context, s.Database, s.Folder, max(2, allConnections/s.Processes))
	if err != nil {
		return nil, nil, err
	}
	closeStore := func() {}
	s.stock, err = openStock(db, s.Table)
	if err == nil && s.Guard.Shared() {
		s.client, closeStore, err = s.Store.client(parent.Context)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, func() { closeStore(); _ = db.Close() }, nil
}

// runShop is the program of a shop. It sends its address, serves until its end, and sends its log.
func runShop(parent *child.Parent) error {
	s, closeAll, err := openShop(parent)
	if err != nil {
		return err
	}
	defer closeAll()
	server, err := startServer(parent.Context, s, func() {})
	if err != nil {
		return err
	}
	defer server.close()
	if err := parent.Send(server.address); err != nil {
		return err
	}
	select {
	case <-server.ended:
		return fmt.Errorf("serve: %w", server.err)
	case <-parent.Context.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	_ = server.Shutdown(closing) // close ends what is left
	s.mu.Lock()
	defer s.mu.Unlock()
	return parent.Send(s.log)
}

// Answers of a shop.
const (
	statusSold    = http.StatusOK
	statusSoldOut = http.StatusGone
	statusRefused = http.StatusConflict // the lock was lost, and nothing was sold
	statusFailed  = http.StatusServiceUnavailable
)

var errSoldOut = errors.New("sold out")

// ServeHTTP answers GET /stock/reduce?id=1, which sells one.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/stock/reduce" || r.URL.Query().Get("id") != strconv.Itoa(productID) {
		http.NotFound(w, r)
		return
	}
	err := s.sell(r.Context())
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

func (s *shop) sell(ctx context.Context) error {
	held, token := ctx, uint64(0) // without a lock
	switch {
	case s.Guard == Local:
		s.local.Lock()
		defer s.local.Unlock()
	case s.Guard.Shared():
		lease, err := s.client.Lock(ctx, OversellLock)
		if err != nil {
			return err
		}
		defer func() { _ = lease.Unlock(ctx) }() // a lock that cannot be released expires
		held, token = lease.Context(), lease.Token()
	}
	return s.reduce(ctx, held, s.row(token))
}

func (s *shop) row(token uint64) row { return row{s.stock, token, s.Guard == Fenced} }

// reduce reads the stock, checks it, and writes it. The time from check to write makes the race.
// held ends when the lock is lost.
func (s *shop) reduce(ctx, held context.Context, product row) error {
	v, sold := visit{From: time.Now().UnixNano(), What: "sold nothing"}, int64(0)
	defer func() {
		v.To = time.Now().UnixNano()
		s.mu.Lock()
		if sold != 0 {
			v.What = "sold one"
			s.log.Falls = append(s.log.Falls, sold)
		}
		if product.token != 0 {
			v.What += fmt.Sprintf(", token %d", product.token)
		}
		s.log.Visits = append(s.log.Visits, v)
		s.mu.Unlock()
	}()
	left, err := product.read(held)
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
	case <-held.Done():
		return context.Cause(held)
	}
	if err := product.take(held); err != nil {
		return err
	}
	sold = time.Now().UnixNano()
	return nil
}

// thinkTime returns how long a buyer takes from reading the stock to paying. It varies, so
// that the processes do not run in step. About the last ones a buyer thinks so long that every
// process that is not kept out reads the same stock: so the race happens in every run.
func (s *shop) thinkTime(left int) time.Duration {
	if s.Think <= 0 {
		return 0
	}
	usual := s.Think
	if left <= 2*s.Processes {
		usual *= hesitation
	}
	return usual/2 + rand.N(usual)
}
