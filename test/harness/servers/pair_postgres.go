package servers

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
)

func startPostgresPair(p *Pair, opts PairOptions) error {
	p.promote = func(ctx context.Context) error {
		const seconds = 30
		done, err := p.Replica.SQL(ctx, fmt.Sprintf("SELECT pg_promote(true, %d)", seconds))
		if err == nil && done != "t" {
			return fmt.Errorf("not promoted after %d seconds", seconds)
		}
		return err
	}
	p.position = func(ctx context.Context) (string, error) {
		return p.Primary.SQL(ctx, "SELECT pg_current_wal_flush_lsn()")
	}
	p.reached = func(ctx context.Context, position string) error {
		return until(ctx, "the replica has replayed "+position, func(ctx context.Context) error {
			done, err := p.Replica.SQL(ctx, fmt.Sprintf("SELECT pg_last_wal_replay_lsn() >= '%s'", position))
			if err == nil && done != "t" {
				return errBehind
			}
			return err
		})
	}
	_, err := p.start(Postgres, standby, opts)
	return err
}

// standby is a PostgreSQL that starts with a copy of another server and follows
// it. The copied data contains the replication settings.
func standby(primaryAddr string) *Kind {
	kind := *Postgres
	kind.Init = func(in Instance) ([]Command, error) {
		host, port, err := net.SplitHostPort(primaryAddr)
		if err != nil {
			return nil, err
		}
		return []Command{{
			filepath.Join(filepath.Dir(in.Binary), "pg_basebackup"), "--pgdata=" + in.Data,
			"--host=" + host, "--port=" + port, "--username=postgres",
			"--write-recovery-conf", "--checkpoint=fast", "--no-sync",
		}}, nil
	}
	return &kind
}
