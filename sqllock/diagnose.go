package sqllock

import (
	"context"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/inwords"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	for _, check := range s.dialect.checks {
		var f driver.Finding
		err := s.read(ctx, "diagnose", func() (err error) {
			f, err = check(ctx, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		findings = append(findings, f)
	}
	if s.dialect.waiting != nil { // it takes a connection of its own
		findings = append(findings, s.dialect.waiting(ctx, s))
	}
	return findings, nil
}

// check examines one thing. Being unable to reach the store is an error, all else a finding.
type check func(context.Context, *Store) (driver.Finding, error)

// problem turns an error of the server into a finding, and leaves what is no answer an error.
func (s *Store) problem(check string, err error) (driver.Finding, error) {
	why := s.facts.Classify(err)
	if why.Meaning == "" || why.Retry {
		return driver.Finding{}, err
	}
	return sqldb.Problem(check, "%s (%v)", why.Meaning, err), nil
}

// breaking returns a finding about a promise that the store does not keep.
func breaking(promise driver.Promise, f driver.Finding) driver.Finding {
	f.Breaks = promise
	return f
}

// ask reads one row of settings.
func (s *Store) ask(ctx context.Context, text string, dest ...any) error {
	return s.db.QueryRowContext(ctx, text).Scan(dest...)
}

var durability = sqldb.Durability{
	Fine: "What was confirmed survives a crash.", Lost: "the last locks and tokens", Breaks: driver.PromiseRestart,
}

// checkRights tries everything that the store does to its tables, on no row.
func checkRights(ctx context.Context, s *Store) (driver.Finding, error) {
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
			return s.problem("rights", err)
		}
	}
	return sqldb.Fine("rights", "The tables can be read and written."), nil
}

// tableNames lists the tables for people.
func (s *Store) tableNames() string {
	return strings.Join([]string{s.tables.Locks, s.tables.Queue, s.tables.Meta}, ", ")
}

// checkTables reads the row that keeps tokens rising when rows are deleted.
func checkTables(ctx context.Context, s *Store) (driver.Finding, error) {
	var floor int64
	if err := s.run().One(ctx, statement.Floor, nil, &floor); err != nil {
		return s.problem("tables", err)
	}
	return sqldb.Fine("tables", s.tableNames()), nil
}

// clockTolerance is what two clocks that are set over the network may differ by.
const clockTolerance = time.Second

// checkClock compares the server's clock with this machine's.
func checkClock(ctx context.Context, s *Store) (driver.Finding, error) {
	var ms int64
	start := time.Now()
	err := s.ask(ctx, `SELECT `+s.facts.Now, &ms)
	server := time.UnixMilli(ms)
	if off := max(time.Until(server), start.Sub(server), 0); off > clockTolerance {
		return sqldb.Warning("clock", "The server's clock and this machine's differ by %s. Locks follow the server's alone. If that is the wrong one, setting it ends locks early or late.",
			inwords.Duration(off.Round(time.Millisecond))), err
	}
	return sqldb.Fine("clock", "The server's clock, which alone counts, agrees with this machine's."), err
}

// pollInterval describes how often a connection polls for waiters.
func pollInterval() string {
	return inwords.Duration(notify.MinInterval) + " to " + inwords.Duration(notify.MaxInterval)
}
