package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Pair is a database with an asynchronous replica: what the primary has
// acknowledged may not have reached the replica yet. The replica can be read. It
// takes over only when Promote is called.
type Pair struct {
	Primary, Replica *Server
	kind             pairKind
}

// PairOptions are the options of a Pair. The zero value is valid.
type PairOptions struct {
	// Args are additional arguments of both servers.
	Args []string

	// ReplicaOf maps the address of the primary to the address that the replica
	// connects to instead: that of a proxy, which the test can cut.
	ReplicaOf func(primaryAddr string) string
}

// pairKind is a kind of database with the statements of a Pair.
type pairKind struct {
	primary *Kind
	replica func(host, port string) *Kind // of a primary
	follow  string                        // makes the replica follow a host and a port; empty if it does so by itself
	// position returns the position of the primary, and reached 1 if the replica has reached a position.
	position, reached string
	// promote makes the replica a primary, and answers promoted.
	promote, promoted string
}

var mariadbPair = pairKind{
	primary: withArgs(MariaDB, func(Instance) []string {
		return []string{"--server-id=1", "--log-bin=binlog", "--sync-binlog=1"}
	}),
	// It is read-only until it is promoted, also after a restart.
	replica: func(_, _ string) *Kind {
		return withArgs(MariaDB, func(in Instance) []string {
			args := []string{"--server-id=2"}
			if _, err := os.Stat(promotedFile(in)); err != nil {
				args = append(args, "--read-only")
			}
			return args
		})
	},
	// Replication starts at the beginning of the log, of which nothing is ever removed.
	follow: "CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='dlock', MASTER_PASSWORD='dlock', " +
		"MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE",
	position: "SELECT @@gtid_binlog_pos",
	reached:  "SELECT MASTER_GTID_WAIT('%s', 0) = 0",
	promote:  "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0",
}

var postgresPair = pairKind{
	primary: Postgres,
	// It starts with a copy of the primary, which contains the replication settings.
	replica: func(host, port string) *Kind {
		kind := *Postgres
		kind.Init = func(in Instance) ([]Command, error) {
			return []Command{{
				filepath.Join(filepath.Dir(in.Binary), "pg_basebackup"), "--pgdata=" + in.Data,
				"--host=" + host, "--port=" + port, "--username=postgres",
				"--write-recovery-conf", "--checkpoint=fast", "--no-sync",
			}}, nil
		}
		return &kind
	},
	position: "SELECT pg_current_wal_flush_lsn()",
	reached:  "SELECT (pg_last_wal_replay_lsn() >= '%s')::int",
	promote:  "SELECT pg_promote(true, 30)", // seconds
	promoted: "t",
}

func promotedFile(in Instance) string { return in.Data + ".promoted" }

// withArgs returns a kind with additional arguments.
func withArgs(kind *Kind, more func(in Instance) []string) *Kind {
	with := *kind
	with.Args = func(in Instance) []string { return append(kind.Args(in), more(in)...) }
	return &with
}

// RunMariaDBPair starts a Pair of MariaDB servers for a test, and stops it when
// the test ends.
func RunMariaDBPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return keep(startPair(mariadbPair, opts))(t)
}

// RunPostgresPair is RunMariaDBPair for PostgreSQL.
func RunPostgresPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return keep(StartPostgresPair(opts))(t)
}

// StartPostgresPair starts a Pair of PostgreSQL servers.
func StartPostgresPair(opts PairOptions) (*Pair, error) { return startPair(postgresPair, opts) }

// startPair starts both servers, and returns when the replica has all data.
func startPair(kind pairKind, opts PairOptions) (*Pair, error) {
	p := &Pair{kind: kind}
	if err := p.start(opts); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Pair) start(opts PairOptions) (err error) {
	if p.Primary, err = Start(p.kind.primary, opts.Args...); err != nil {
		return err
	}
	addr := p.Primary.Addr()
	if opts.ReplicaOf != nil {
		addr = opts.ReplicaOf(addr)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if p.Replica, err = Start(p.kind.replica(host, port), opts.Args...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit) // from here: the starts have limits of their own
	defer cancel()
	if p.kind.follow != "" {
		if _, err := p.Replica.SQL(ctx, fmt.Sprintf(p.kind.follow, host, port)); err != nil {
			return err
		}
	}
	return p.WaitCaughtUp(ctx)
}

// Promote makes the replica a primary for good. It needs no primary, and does not
// wait for data that has not arrived yet.
func (p *Pair) Promote(ctx context.Context) error {
	done, err := p.Replica.SQL(ctx, p.kind.promote)
	if err == nil && done != p.kind.promoted {
		err = fmt.Errorf("it answers %q", done)
	}
	if err == nil {
		err = os.WriteFile(promotedFile(p.Replica.in), nil, 0o644)
	}
	if err != nil {
		return fmt.Errorf("promoting the replica: %w", err)
	}
	return nil
}

// WaitCaughtUp waits until the replica has all data that the primary has now.
func (p *Pair) WaitCaughtUp(ctx context.Context) error {
	position, err := p.Primary.SQL(ctx, p.kind.position)
	if err != nil {
		return fmt.Errorf("waiting for the replica: %w", err)
	}
	return until(ctx, "the replica has reached "+position, func(ctx context.Context) error {
		done, err := p.Replica.SQL(ctx, fmt.Sprintf(p.kind.reached, position))
		if err == nil && done != "1" {
			return errors.New("the replica is behind")
		}
		return err
	})
}

// Stop stops both servers.
func (p *Pair) Stop() error { return p.all().Stop() }

func (p *Pair) all() Group { return Group{p.Primary, p.Replica} }
