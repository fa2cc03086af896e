// Command charge is a service that must not charge an order twice, however many
// copies of it run and whatever happens to a copy. The lock in Redis keeps two
// copies from doing the same work at once. It cannot stop a copy that was paused
// for longer than its lease. The row in PostgreSQL can: it stores the largest token
// that wrote it.
//
//	go run ./charge --redis redis://localhost:6379 --db postgres://app@localhost/shop --prices http://localhost:8081
//	curl -X POST localhost:8080/orders/42/charge
//
// The tables:
//
//	CREATE TABLE orders (id INT PRIMARY KEY, paid BOOLEAN NOT NULL DEFAULT false, fence BIGINT NOT NULL DEFAULT 0);
//	CREATE TABLE charges (order_id INT NOT NULL, amount INT NOT NULL);
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/redislock"
	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve")
	redis := flag.String("redis", "redis://localhost:6379", "where the locks are")
	database := flag.String("db", "postgres://localhost/shop", "where the orders are")
	prices := flag.String("prices", "http://localhost:8081", "the service that knows what an order costs")
	ttl := flag.Duration("ttl", dlock.DefaultTTL, "how long the lock of a service that died stays")
	flag.Parse()
	if err := run(*listen, *redis, *database, *prices, *ttl); err != nil {
		log.Fatal(err)
	}
}

func run(listen, redis, database, prices string, ttl time.Duration) error {
	store, err := redislock.Open(context.Background(), redis, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dlock.New(store, &dlock.Options{TTL: ttl})
	defer locks.Close()
	db, err := sql.Open("pgx", database)
	if err != nil {
		return err
	}
	defer db.Close()
	orders, err := fence.New(fence.Row{Dialect: fence.PostgreSQL, Table: "orders", Key: "id"})
	if err != nil {
		return err
	}
	return serve(listen, &shop{locks, db, orders, prices})
}

// serve answers requests until a signal arrives, and then lets the requests in
// progress finish.
func serve(listen string, s *shop) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/charge", s.handleCharge)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() { ended <- server.Shutdown(context.Background()) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended // Serve returns when Shutdown begins
}

type shop struct {
	locks  *dlock.Client
	db     *sql.DB
	orders *fence.Guard // of the table orders
	prices string
}

// charge takes the money for an order, unless that was done before.
func (s *shop) charge(ctx context.Context, order int) error {
	lease, err := s.locks.Lock(ctx, fmt.Sprintf("orders/%d", order), dlock.WithWait(10*time.Second))
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) //nolint:errcheck // The row has already reported a lost lock.
	err = s.chargeOnce(lease, order)
	if err != nil && errors.Is(context.Cause(lease.Context()), dlock.ErrLost) {
		return dlock.ErrLost // whatever call failed because of it
	}
	return err
}

func (s *shop) chargeOnce(lease *dlock.Lease, order int) error {
	ctx := lease.Context() // done when the lock is lost: no work continues without the lock
	if paid, err := isPaid(ctx, s.db, order); err != nil || paid {
		return err
	}
	amount, err := s.price(ctx, order)
	if err != nil {
		return err
	}
	// If this process was paused above, the row may have a larger token by now, and rejects this one.
	return s.orders.Do(ctx, s.db, order, lease.Token(), func(tx *sql.Tx) error {
		// Until the row had this token, the commit of a former holder could still arrive.
		if paid, err := isPaid(ctx, tx, order); err != nil || paid {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO charges (order_id, amount) VALUES ($1, $2)", order, amount); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", order)
		return err
	})
}

// queryer is a database or a transaction.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func isPaid(ctx context.Context, db queryer, order int) (paid bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT paid FROM orders WHERE id = $1", order).Scan(&paid)
	return paid, err
}

// price asks another service, which may be slow.
//
// The row does not protect a call that moves money in another service. Such a
// service needs an idempotency key to recognize a repeated request.
func (s *shop) price(ctx context.Context, order int) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/%d", s.prices, order), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the price of order %d: %s", order, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 20))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func (s *shop) handleCharge(w http.ResponseWriter, r *http.Request) {
	order, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		http.Error(w, "the order must be a number", http.StatusBadRequest)
		return
	}
	switch err := s.charge(r.Context(), order); {
	case err == nil:
		fmt.Fprintln(w, "paid")
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
	case errors.Is(err, fence.ErrStale), errors.Is(err, dlock.ErrLost):
		http.Error(w, "the lock was lost: try again", http.StatusConflict)
	case errors.Is(err, dlock.ErrHeld):
		http.Error(w, "the order is being charged: try again", http.StatusConflict)
	default:
		log.Print(err)
		http.Error(w, "not available: try again", http.StatusServiceUnavailable)
	}
}
