package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

func startMariaDBPair(p *Pair, opts PairOptions) error {
	p.promote = func(ctx context.Context) error {
		_, err := p.Replica.SQL(ctx, "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")
		return errors.Join(err, os.WriteFile(promotedFile(p.Replica.in), nil, 0o644))
	}
	p.position = func(ctx context.Context) (string, error) {
		return p.Primary.SQL(ctx, "SELECT @@gtid_binlog_pos")
	}
	p.reached = func(ctx context.Context, position string) error {
		return until(ctx, "the replica has executed "+position, func(ctx context.Context) error {
			status, err := p.Replica.SQL(ctx, fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', 0)", position))
			if err == nil && status != "0" {
				return errBehind
			}
			return err
		})
	}
	primaryAddr, err := p.start(logging, following, opts)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(primaryAddr)
	if err != nil {
		return err
	}
	// Replication starts at the beginning of the log, of which nothing is ever
	// removed.
	_, err = p.Replica.SQL(context.Background(), fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, "+
		"MASTER_USER='dlock', MASTER_PASSWORD='dlock', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE", host, port))
	return err
}

// logging is a MariaDB that replicas can follow.
var logging = withArgs(MariaDB, func(Instance) []string {
	return []string{"--server-id=1", "--log-bin=binlog", "--sync-binlog=1"}
})

// following is a MariaDB that is a replica. It is read-only until it is promoted,
// also after a restart.
func following(string) *Kind {
	return withArgs(MariaDB, func(in Instance) []string {
		args := []string{"--server-id=2"}
		if _, err := os.Stat(promotedFile(in)); err != nil {
			args = append(args, "--read-only")
		}
		return args
	})
}

func promotedFile(in Instance) string { return in.Data + ".promoted" }

func withArgs(kind *Kind, more func(in Instance) []string) *Kind {
	changed := *kind
	changed.Args = func(in Instance) []string { return append(kind.Args(in), more(in)...) }
	return &changed
}
