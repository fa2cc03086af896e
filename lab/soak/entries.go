package soak

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/lab/subject"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// How many entries a store keeps, by its own account.

func redisEntries(ctx context.Context, members servers.Group) (sum int, err error) {
	for _, member := range members {
		client := redis.NewClient(&redis.Options{Addr: member.Addr()})
		n, err := client.DBSize(ctx).Result()
		client.Close()
		if err != nil {
			return 0, err
		}
		sum += int(n)
	}
	return sum, nil
}

func memcachedEntries(ctx context.Context, addr string) (int, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "stats\r\n"); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		if value, ok := strings.CutPrefix(lines.Text(), "STAT curr_items "); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("memcached at %s does not count its items", addr)
}

func etcdEntries(ctx context.Context, addrs []string) (int, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	keys, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return 0, err
	}
	return int(keys.Count) + len(leases.Leases), nil
}

func zookeeperEntries(ctx context.Context, server *servers.Server) (int, error) {
	figures, err := server.Monitor(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(figures["zk_znode_count"])
}

// sqlLingers is how long the row of a dead waiter lasts at most.
const sqlLingers = 30 * time.Second

// countRows counts the locks and places of a database.
const countRows = "SELECT (SELECT count(*) FROM dlock_locks) + (SELECT count(*) FROM dlock_queue)"

// sqlEntries counts the rows of a server, those of locks that are bound to a connection if
// bound is set.
func sqlEntries(ctx context.Context, server *servers.Server, bound bool) (int, error) {
	count := countRows
	if bound {
		count = "SELECT count(*) FROM dlock_bound"
		if strings.HasPrefix(server.URL(), "postgres:") { // with the scheme session
			count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
		}
	}
	text, err := server.SQL(ctx, count)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// sqlJanitorIsDue makes the janitor of the next store that is opened run.
func sqlJanitorIsDue(ctx context.Context, server *servers.Server) error {
	key := "key"
	if strings.HasPrefix(server.URL(), "mysql:") {
		key = "`key`"
	}
	_, err := server.SQL(ctx, "UPDATE dlock_meta SET value = 0 WHERE "+key+" = 'swept'")
	return err
}

// sqliteRow executes a statement that returns a number.
func sqliteRow(ctx context.Context, file, statement string, n *int) error {
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(file))
	if err != nil {
		return err
	}
	return errors.Join(db.QueryRowContext(ctx, statement).Scan(n), db.Close())
}

// runJanitor opens a store, whose janitor runs at once if it is due.
func (p *place) runJanitor(ctx context.Context, due error) error {
	if due != nil {
		return due
	}
	store, err := subject.OpenStore(ctx, p.url(p.addrs))
	if err != nil {
		return err
	}
	wait(ctx, settle)
	return store.Close()
}
