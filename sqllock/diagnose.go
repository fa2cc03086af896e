package sqllock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	err = s.perform(ctx, "diagnose", func() error {
		findings = nil
		for _, check := range s.dialect.checks {
			f := finding{Check: check.name}
			if err := check.run(ctx, s, &f); err != nil {
				return err
			}
			findings = append(findings, driver.Finding(f))
		}
		return nil
	})
	return findings, err
}

// check examines one thing. Being unable to reach the store is an error, all else a finding.
type check struct {
	name string
	run  func(context.Context, *Store, *finding) error
}

// finding is the result of a check.
type finding driver.Finding

func (f *finding) ok(message string) { f.Level, f.Message = driver.LevelOK, message }

// warning and problem set the level, and the promise that the store does not keep; empty if
// it keeps all.
func (f *finding) warning(breaks driver.Promise, format string, args ...any) {
	f.Level, f.Breaks, f.Message = driver.LevelWarning, breaks, fmt.Sprintf(format, args...)
}

func (f *finding) problem(breaks driver.Promise, format string, args ...any) {
	f.Level, f.Breaks, f.Message = driver.LevelProblem, breaks, fmt.Sprintf(format, args...)
}

// explain turns an error of the server into a problem, and leaves what is no answer an error.
func (f *finding) explain(s *Store, err error) error {
	why := s.facts.Classify(err)
	if why.Explain == "" || why.Retry {
		return err
	}
	f.problem("", "%s (%v)", why.Explain, err)
	return nil
}

// ask reads one row of settings.
func (s *Store) ask(ctx context.Context, text string, dest ...any) error {
	return s.db.QueryRowContext(ctx, text).Scan(dest...)
}

const durable = "What was confirmed survives a crash."

// checkRights tries everything that the store does to its tables, on no row.
func checkRights(ctx context.Context, s *Store, f *finding) error {
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
			return f.explain(s, err)
		}
	}
	f.ok("The tables can be read and written.")
	return nil
}

// checkTables reads the row that keeps tokens rising when rows are deleted.
func checkTables(ctx context.Context, s *Store, f *finding) error {
	var floor int64
	if err := s.run().One(ctx, statement.Floor, nil, &floor); err != nil {
		return f.explain(s, err)
	}
	f.ok(strings.Join([]string{s.tables.Locks, s.tables.Queue, s.tables.Meta}, ", "))
	return nil
}

// clockTolerance is what two clocks that are set over the network may differ by.
const clockTolerance = time.Second

// checkClock compares the server's clock with this machine's.
func checkClock(ctx context.Context, s *Store, f *finding) error {
	var ms int64
	start := time.Now()
	err := s.ask(ctx, `SELECT `+s.facts.Now, &ms)
	server := time.UnixMilli(ms)
	f.ok("The server's clock, which alone counts, agrees with this machine's.")
	if off := max(time.Until(server), start.Sub(server), 0); off > clockTolerance {
		f.warning("", "The server's clock and this machine's differ by %v. Locks follow the server's alone. If that is the wrong one, setting it ends locks early or late.",
			off.Round(time.Millisecond))
	}
	return err
}
