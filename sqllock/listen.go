package sqllock

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
	"github.com/dlock-go/dlock/internal/sqldb"
)

const (
	// minPool is the smallest pool that can spare a connection to listen on:
	// one is for the store and one for what the program does beside.
	minPool = 3

	// An echo is a message to oneself. Where it does not come back, waiters
	// poll: a network may have dropped the connection without a word.
	echoLimit    = 2 * time.Second
	echoInterval = 30 * time.Second

	// After a failure listening begins again, ever later.
	minRelisten = 50 * time.Millisecond
	maxRelisten = 30 * time.Second
)

// echoMark begins every echo and no name, since it is a control character.
const echoMark = "\t"

var (
	errSmallPool = fmt.Errorf("the pool is limited to less than %d connections, so that none can be spared to listen on", minPool)
	errDeaf      = errors.New("the driver cannot wait for messages (pgx can)")
	errPooler    = errors.New("a pooler such as PgBouncer is in between, where the connection that listens may be given to others")
	errNoEcho    = errors.New("messages do not arrive")
)

// listener hears what became free, on one connection of its own.
type listener struct {
	db      *sql.DB
	channel string
	tell    tellFunc          // sends a message, over any other connection
	hear    func(name string) // is called for every name that became free
	hears   atomic.Bool       // messages arrive
	turned  chan struct{}     // hears has changed

	mu   sync.Mutex
	echo string        // what is expected
	came chan struct{} // is closed when it comes
}

type tellFunc func(channel, payload string) error

func newListener(s *Store, hear func(string)) *listener {
	tell := func(channel, payload string) error {
		ctx, cancel := context.WithTimeout(s.ctx, echoLimit)
		defer cancel()
		return s.read(ctx, "listen", func() error {
			_, err := s.db.ExecContext(ctx, `SELECT pg_notify($1::text, $2::text)`, channel, payload)
			return err
		})
	}
	return &listener{db: s.db, channel: s.tables.Wake, tell: tell, hear: hear, turned: make(chan struct{}, 1)}
}

// run listens until the context ends, or it is clear that it cannot.
func (l *listener) run(ctx context.Context) {
	pause := minRelisten
	for ctx.Err() == nil {
		err := l.listen(ctx)
		if l.set(false) {
			pause = minRelisten
		}
		if errors.Is(err, errDeaf) || errors.Is(err, errPooler) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		pause = min(2*pause, maxRelisten)
	}
}

// set says whether messages arrive, and returns whether they did before.
func (l *listener) set(hears bool) (before bool) {
	before = l.hears.Swap(hears)
	if before != hears {
		sqldb.Signal(l.turned)
	}
	return before
}

// listen takes a connection and hears until it fails. The connection is not
// given back: messages may be on their way to it.
func (l *listener) listen(ctx context.Context) error {
	if most := l.db.Stats().MaxOpenConnections; most > 0 && most < minPool {
		return errSmallPool
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := l.suitable(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, `LISTEN "`+l.channel+`"`); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() { cancel(l.verify(ctx)) })
	var failed error
	_ = conn.Raw(func(driverConn any) error {
		failed = l.receive(ctx, driverConn)
		return sqldb.CloseConn(driverConn)
	})
	cancel(failed)
	work.Wait()
	return context.Cause(ctx)
}

// suitable says why a connection cannot be listened on. It asks before it
// listens: behind a pooler that would never end.
func (l *listener) suitable(ctx context.Context, conn *sql.Conn) error {
	var told, pid int64
	err := conn.Raw(func(driverConn any) error {
		pgx, ok := sqldb.AsPgx(driverConn)
		if !ok {
			return errDeaf
		}
		told = pgx.PID()
		return nil
	})
	if err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	if pid != told {
		return errPooler
	}
	return nil
}

// receive passes on messages until there are no more.
func (l *listener) receive(ctx context.Context, driverConn any) error {
	conn, _ := sqldb.AsPgx(driverConn)
	for {
		channel, payload, err := conn.NextNotification(ctx)
		switch {
		case err != nil:
			return err
		case channel != l.channel:
		case strings.HasPrefix(payload, echoMark):
			l.echoed(payload)
		default:
			l.hear(payload)
		}
	}
}

// verify sends an echo now and then until one does not come back.
func (l *listener) verify(ctx context.Context) error {
	for {
		if err := l.shout(ctx); err != nil {
			return err
		}
		l.set(true)
		timer := time.NewTimer(echoInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// shout sends an echo, over any connection, and waits for it.
func (l *listener) shout(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, echoLimit, errNoEcho)
	defer cancel()
	came := make(chan struct{})
	l.mu.Lock()
	l.echo, l.came = echoMark+driver.NewOwner().Hex(), came
	echo := l.echo
	l.mu.Unlock()
	if err := l.tell(l.channel, echo); err != nil {
		return err
	}
	select {
	case <-came:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// echoed is told of every echo, of others too.
func (l *listener) echoed(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if payload == l.echo {
		l.echo = ""
		close(l.came)
	}
}
