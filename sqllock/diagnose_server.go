package sqllock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// check examines one thing.
type check func(context.Context, *Store) (driver.Finding, error)

// checks runs them all.
func checks(ctx context.Context, s *Store, all ...check) (findings []driver.Finding, err error) {
	for _, check := range all {
		finding, err := check(ctx, s)
		if err != nil {
			return nil, err
		}
		findings = append(findings, finding)
	}
	return findings, nil
}

func fine(check, message string) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: message}
}

func warning(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelWarning, Message: fmt.Sprintf(format, args...)}
}

func problem(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelProblem, Message: fmt.Sprintf(format, args...)}
}

// broken is a finding because of which a promise does not hold.
func broken(promise driver.Promise, f driver.Finding) driver.Finding {
	f.Breaks = promise
	return f
}

// ask reads one row of settings.
func (s *Store) ask(ctx context.Context, text string, dest ...any) error {
	return s.db.QueryRowContext(ctx, s.tables.expand("", text)).Scan(dest...)
}

// explained turns what the server refuses into a finding, and leaves what is no
// answer at all an error.
func (s *Store) explained(check string, err error) (driver.Finding, error) {
	if why := s.dialect.classify(err); why.explain != "" && !why.retry {
		return problem(check, "%s (%v)", why.explain, err), nil
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
		if _, err := s.db.ExecContext(ctx, s.tables.expand("", text)); err != nil {
			return s.explained(name, err)
		}
	}
	return fine(name, "The tables can be read and written."), nil
}

// checkFloor looks for what keeps tokens rising when rows are swept.
func checkFloor(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "tables"
	var least int64
	if err := s.each().one(ctx, floor, nil, &least); err != nil {
		return s.explained(name, err)
	}
	return fine(name, strings.Join([]string{s.tables.locks, s.tables.queue, s.tables.meta}, ", ")), nil
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
		return fine(name, "The server's clock, which alone counts, agrees with this machine's.")
	}
	return warning(name, "The server's clock and this machine's differ by %v. Locks follow the server's alone. If that is the wrong one, setting it ends locks early or late.",
		off.Round(time.Millisecond))
}

// checkClock is clockFinding with the dialect's clock.
func checkClock(now string) check {
	return func(ctx context.Context, s *Store) (driver.Finding, error) {
		var ms int64
		start := time.Now()
		err := s.ask(ctx, `SELECT `+now, &ms)
		return clockFinding(ms, start, time.Now()), err
	}
}
