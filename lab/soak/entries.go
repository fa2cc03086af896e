package soak

import (
	"bufio"
	"context"
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
)

// How many entries a store keeps, by its own account.

func countKeys(ctx context.Context, p *place) (sum int, err error) {
	for _, member := range p.members {
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

func countItems(ctx context.Context, p *place) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Addrs[0])
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
	return 0, fmt.Errorf("memcached at %s does not count its items", p.Addrs[0])
}

func countKeysAndLeases(ctx context.Context, p *place) (int, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: p.Addrs, Logger: zap.NewNop()})
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

func countNodes(ctx context.Context, p *place) (n int, err error) {
	server := p.members[0]
	if p.leader != nil {
		if server, err = p.leader(ctx); err != nil {
			return 0, errors.Join(err, ctx.Err())
		}
	}
	figures, err := server.Monitor(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(figures["zk_znode_count"])
}

// Statements that count the locks and places of a database.
const (
	lockRows     = "SELECT (SELECT count(*) FROM dlock_locks) + (SELECT count(*) FROM dlock_queue)"
	boundRows    = "SELECT count(*) FROM dlock_bound"
	advisoryRows = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
)

func countRows(statement string) func(ctx context.Context, p *place) (int, error) {
	return func(ctx context.Context, p *place) (int, error) {
		text, err := p.sql(ctx, statement)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(text)
	}
}

// rowLingers is how long the row of a dead waiter lasts at most.
const rowLingers = 30 * time.Second

// sweep lets the janitor run: that of a store that is opened runs at once if it is due.
func (p *place) sweep(ctx context.Context) error {
	due := "UPDATE dlock_meta SET value = 0 WHERE key = 'swept'"
	if len(p.members) > 0 && strings.HasPrefix(p.members[0].URL(), "mysql:") {
		due = strings.Replace(due, "key", "`key`", 1)
	}
	if _, err := p.sql(ctx, due); err != nil {
		return err
	}
	store, err := subject.OpenStore(ctx, p.URL(p.Addrs))
	if err != nil {
		return err
	}
	wait(ctx, settle)
	return store.Close()
}
