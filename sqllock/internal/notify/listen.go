package notify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
)

const (
	// minPool is the smallest pool that can spare a connection to listen on: the store
	// and the program need one each.
	minPool = 3

	// EchoLimit is how long a notification may take that the listener sends to itself. If this
	// echo does not arrive, waiters poll: the connection may have died without a sign.
	EchoLimit    = 2 * time.Second
	echoInterval = 30 * time.Second

	// After a failure the listener begins again, with growing delays.
	minRelisten = 50 * time.Millisecond
	maxRelisten = 30 * time.Second
)

// echoMark begins every echo and no name, since it is a control character.
const echoMark = "\t"

var (
	errSmallPool = fmt.Errorf("the pool is limited to less than %d connections, so that none can be spared to listen on", minPool)
	errNoListen  = errors.New("the driver cannot wait for messages (pgx can)")
	errPooler    = errors.New("a pooler such as PgBouncer is in between, where the connection that listens may be given to others")
	errNoEcho    = errors.New("messages do not arrive")
)

// Listener receives the notifications of PostgreSQL, on one connection of its own.
type Listener struct {
	DB      *sql.DB
	Channel string
	Send    func(payload string) error // notifies the channel, over any other connection
	Notify  func(name string)          // is called for every name that became free

	listening    atomic.Bool   // notifications arrive
	stateChanged chan struct{} // receives when listening has changed
}

// Follow returns a source that calls Notify for just the names that became free. Waiters
// poll while that does not work.
func (l *Listener) Follow(ctx context.Context) Source {
	ctx, cancel := context.WithCancel(ctx)
	l.stateChanged = make(chan struct{}, 1)
	var work sync.WaitGroup
	work.Go(func() { l.run(ctx) })
	notifies := l.listening.Load
	return Source{Events: l.stateChanged, Schedule: &serverSchedule{notified: notifies}, Notifies: notifies, Stop: func() {
		cancel()
		work.Wait()
	}}
}

// Try listens until the first echo arrives. The error says why it does not.
func (l *Listener) Try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*EchoLimit)
	l.stateChanged = make(chan struct{}, 1)
	ended := make(chan error, 1)
	var work sync.WaitGroup
	work.Go(func() { ended <- l.listen(ctx) })
	defer work.Wait()
	defer cancel()
	select {
	case <-l.stateChanged:
		return nil
	case err := <-ended:
		return err
	}
}

// run listens until the context ends, or it is clear that it cannot.
func (l *Listener) run(ctx context.Context) {
	pause := backoff.Backoff{Min: minRelisten, Max: maxRelisten}
	for {
		err := l.listen(ctx)
		if l.setListening(false) {
			pause.Reset()
		}
		if errors.Is(err, errNoListen) || errors.Is(err, errPooler) || pause.Wait(ctx) != nil {
			return
		}
	}
}

// setListening notes whether notifications arrive, and returns whether they did before.
func (l *Listener) setListening(listening bool) (before bool) {
	before = l.listening.Swap(listening)
	if before != listening {
		sqldb.Signal(l.stateChanged)
	}
	return before
}

// listen takes a connection and receives until it fails. The connection does not go back
// to the pool: notifications may be on their way to it.
func (l *Listener) listen(ctx context.Context) error {
	if limit := l.DB.Stats().MaxOpenConnections; limit > 0 && limit < minPool {
		return errSmallPool
	}
	conn, err := l.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := checkConn(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, `LISTEN "`+l.Channel+`"`); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	echo, echoed := echoMark+driver.NewOwner().Hex(), make(chan struct{}, 1)
	var work sync.WaitGroup
	work.Go(func() { cancel(l.verify(ctx, echo, echoed)) })
	var failed error
	_ = conn.Raw(func(driverConn any) error {
		failed = l.receive(ctx, driverConn, echo, echoed)
		return sqldb.CloseConn(driverConn)
	})
	cancel(failed)
	work.Wait()
	return context.Cause(ctx)
}

// checkConn returns why a connection cannot be listened on. Behind a pooler a LISTEN would
// never end, so checkConn comes first.
func checkConn(ctx context.Context, conn *sql.Conn) error {
	var known, pid int64
	err := conn.Raw(func(driverConn any) error {
		pgx, ok := sqldb.AsPgx(driverConn)
		if !ok {
			return errNoListen
		}
		known = pgx.PID()
		return nil
	})
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	}
	if err == nil && pid != known {
		err = errPooler
	}
	return err
}

// receive passes on notifications until the connection fails.
func (l *Listener) receive(ctx context.Context, driverConn any, echo string, echoed chan<- struct{}) error {
	conn, _ := sqldb.AsPgx(driverConn)
	for {
		channel, payload, err := conn.NextNotification(ctx)
		switch {
		case err != nil:
			return err
		case payload == echo:
			sqldb.Signal(echoed)
		case channel != l.Channel || strings.HasPrefix(payload, echoMark): // or of another listener
		default:
			l.Notify(payload)
		}
	}
}

// verify sends an echo now and then until one does not arrive.
func (l *Listener) verify(ctx context.Context, echo string, echoed <-chan struct{}) error {
	for {
		limit := time.After(EchoLimit)
		select {
		case <-echoed: // a repeated one
		default:
		}
		if err := l.Send(echo); err != nil {
			return err
		}
		select {
		case <-echoed:
		case <-limit:
			return errNoEcho
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.setListening(true)
		if err := backoff.Sleep(ctx, echoInterval); err != nil {
			return err
		}
	}
}
