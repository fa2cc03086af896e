package sqllock

import (
	"context"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// check examines one thing.
type check func(context.Context, *Store) (driver.Finding, error)

// ask reads one row of settings.
func (s *Store) ask(ctx context.Context, text string, dest ...any) error {
	return s.db.QueryRowContext(ctx, s.tables.Expand("", text)).Scan(dest...)
}

// explained turns what the server refuses into a finding, and leaves what is no
// answer at all an error.
func (s *Store) explained(check string, err error) (driver.Finding, error) {
	if why := s.facts.Classify(err); why.Explain != "" && !why.Retry {
		return sqldb.Problem(check, "%s (%v)", why.Explain, err), nil
	}
	return driver.Finding{}, err
}

// checkRights tries everything that the store does to its tables, on no row.
func checkRights(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "rights"
	for _, text := range []string{
		`INSERT INTO {locks} (name, token, owner, since, expires, holder) SELECT name, token, owner, since, expires, holder FROM {locks} WHERE 1 = 0`,
		`UPDATE {locks} SET token = 0 WHERE 1 = 0`,
		`DELETE FROM {locks} WHERE 1 = 0`,
		`INSERT INTO {queue} (name, owner, fair, expires) SELECT name, owner, fair, expires FROM {queue} WHERE 1 = 0`,
		`UPDATE {queue} SET expires = 0 WHERE 1 = 0`,
		`DELETE FROM {queue} WHERE 1 = 0`,
		`UPDATE {meta} SET value = 0 WHERE 1 = 0`,
	} {
		if _, err := s.db.ExecContext(ctx, s.tables.Expand("", text)); err != nil {
			return s.explained(name, err)
		}
	}
	return sqldb.Fine(name, "The tables can be read and written."), nil
}

// checkFloor looks for what keeps tokens rising when rows are swept.
func checkFloor(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "tables"
	var least int64
	if err := s.each().one(ctx, floor, nil, &least); err != nil {
		return s.explained(name, err)
	}
	return sqldb.Fine(name, strings.Join([]string{s.tables.Locks, s.tables.Queue, s.tables.Meta}, ", ")), nil
}

// clockTolerance is what two clocks that are set over the network may differ by.
const clockTolerance = time.Second

// clockFinding compares a clock that was read between start and end with this
// machine's.
func clockFinding(ms int64, start, end time.Time) driver.Finding {
	const name = "clock"
	server := time.UnixMilli(ms)
	off := max(server.Sub(end), start.Sub(server), 0)
	if off <= clockTolerance {
		return sqldb.Fine(name, "The server's clock, which alone counts, agrees with this machine's.")
	}
	return sqldb.Warning(name, "The server's clock and this machine's differ by %v. Locks follow the server's alone. If that is the wrong one, setting it ends locks early or late.",
		off.Round(time.Millisecond))
}

// checkClock is clockFinding with the dialect's clock.
func checkClock(ctx context.Context, s *Store) (driver.Finding, error) {
	var ms int64
	start := time.Now()
	err := s.ask(ctx, `SELECT `+s.facts.Now, &ms)
	return clockFinding(ms, start, time.Now()), err
}
