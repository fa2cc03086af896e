package examples

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/servers"
)

const (
	// chargeTTL is the TTL of a lock, for which a paused service blocks the
	// others. They wait for ten seconds.
	chargeTTL = 4 * time.Second

	limit = 30 * time.Second
)

// TestCharge checks that an order is charged once, however many services receive
// the request.
func TestCharge(t *testing.T) {
	t.Parallel()
	shop := openShop(t)
	close(shop.answer)
	services := []service{shop.start(t), shop.start(t), shop.start(t)}
	const requests = 24
	answers := make(chan string, requests)
	for i := range requests {
		go func() { answers <- services[i%len(services)].charge(t.Context(), 1) }()
	}
	for range requests {
		if got := <-answers; got != "200 paid" {
			t.Errorf("an answer is %q; want that the order is paid", got)
		}
	}
	if n := shop.charges(t, 1); n != 1 {
		t.Errorf("the order was charged %d times", n)
	}
	if got := services[0].charge(t.Context(), 2); got != "404 no such order" {
		t.Errorf("an order that does not exist: %q", got)
	}
}

// TestChargeByAPausedService checks that a service that is paused until another
// has its lock charges nothing when it goes on.
func TestChargeByAPausedService(t *testing.T) {
	t.Parallel()
	shop := openShop(t)
	paused, other := shop.start(t), shop.start(t)
	answer := make(chan string, 1)
	go func() { answer <- paused.charge(t.Context(), 1) }()
	await.Event(t, shop.asked, "the service has the lock, has found the order unpaid, and asks for the price")
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	close(shop.answer) // the answer for the paused service
	if got := other.charge(t.Context(), 1); got != "200 paid" {
		t.Errorf("the other service answers %q", got)
	}
	if err := paused.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := await.Event(t, answer, "the answer of the service that was paused"); got != "409 the lock was lost: try again" {
		t.Errorf("the service that was paused answers %q", got)
	}
	if n := shop.charges(t, 1); n != 1 {
		t.Errorf("the order was charged %d times", n)
	}
}

// TestChargeBesideALateCommit checks that a service does not charge an order that a former holder has
// just paid: its commit arrives when the lock has been lost, and after the service found the order
// unpaid. The row has not seen the larger token by then, and so accepts it.
func TestChargeBesideALateCommit(t *testing.T) {
	t.Parallel()
	shop := openShop(t)
	service := shop.start(t)
	former, err := shop.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer former.Rollback()
	for _, statement := range []string{
		"UPDATE orders SET fence = 1, paid = true WHERE id = 1", // Redis grants larger tokens
		"INSERT INTO charges (order_id, amount) VALUES (1, 100)",
	} {
		if _, err := former.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	answer := make(chan string, 1)
	close(shop.answer)
	go func() { answer <- service.charge(t.Context(), 1) }()
	await.Until(t, "the service waits for the row", func() bool {
		var waiting int
		err := shop.db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
		return err == nil && waiting > 0
	})
	if err := former.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "200 paid" {
		t.Errorf("the service answers %q", got)
	}
	if n := shop.charges(t, 1); n != 1 {
		t.Errorf("the order was charged %d times", n)
	}
}

// TestChargeFinishesRequestsInProgress checks that a service that is stopped answers the request that it
// works on.
func TestChargeFinishesRequestsInProgress(t *testing.T) {
	t.Parallel()
	shop := openShop(t)
	service := shop.start(t)
	answer := make(chan string, 1)
	go func() { answer <- service.charge(t.Context(), 1) }()
	await.Event(t, shop.asked, "the service asks for the price")
	if err := syscall.Kill(service.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the service accepts no more requests", func() bool { return service.charge(t.Context(), 2) != "404 no such order" })
	close(shop.answer)
	if got := await.Event(t, answer, "the service answers"); got != "200 paid" {
		t.Errorf("the request in progress: %q", got)
	}
}

// shop is the state that the services share.
type shop struct {
	redis, database, prices string
	db                      *sql.DB
	asked                   chan struct{} // receives a value for each request for a price
	answer                  chan struct{} // closed to answer the first request; the others are answered at once
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{
		redis:    servers.Run(t, servers.Redis).URL(),
		database: servers.Run(t, servers.Postgres).URL(),
		asked:    make(chan struct{}, 100),
		answer:   make(chan struct{}),
	}
	db, err := sql.Open("pgx", s.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s.db = db
	for _, statement := range append(tables(t), "INSERT INTO orders (id) VALUES (1)") {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var later atomic.Bool
	prices := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked <- struct{}{}
		if !later.Swap(true) {
			<-s.answer
		}
		fmt.Fprint(w, "100")
	}))
	t.Cleanup(prices.Close)
	s.prices = prices.URL
	return s
}

// tables returns the statements in the documentation of the example.
func tables(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(Folder + "/charge/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var statements []string
	for line := range strings.Lines(string(source)) {
		if _, statement, found := strings.Cut(line, "//\tCREATE TABLE"); found {
			statements = append(statements, "CREATE TABLE"+statement)
		}
	}
	if len(statements) != 2 {
		t.Fatalf("the example creates %d tables: %q", len(statements), statements)
	}
	return statements
}

func (s *shop) charges(t *testing.T, order int) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM charges WHERE order_id = $1", order).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// service is one process.
type service struct {
	*child.Process
	url string
}

func (s *shop) start(t *testing.T) service {
	t.Helper()
	p := child.Run(t, Command(t, "charge", "--listen", "127.0.0.1:0", "--redis", s.redis, "--db", s.database, "--prices", s.prices, "--ttl", chargeTTL.String()))
	line, err := p.Receive(await.Limit)
	address, found := strings.CutPrefix(line, "listening on ")
	if !found {
		t.Fatalf("the service printed %q, %v", line, err)
	}
	return service{p, "http://" + address}
}

// charge returns the status and the text of the answer.
func (s service) charge(ctx context.Context, order int) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/orders/%d/charge", s.url, order), nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(text)))
}
