package sqlsession_test

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// finding returns what Diagnose says about one check.
func finding(t testing.TB, store *sqlsession.Store, check string) driver.Finding {
	t.Helper()
	findings, err := store.Diagnose(t.Context())
	if err != nil {
		t.Fatalf("Diagnose: %v", err)
	}
	for _, f := range findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("Diagnose says nothing about %s: %v", check, findings)
	return driver.Finding{}
}

func says(t testing.TB, f driver.Finding, level driver.Level, text string) {
	t.Helper()
	if f.Level != level || !strings.Contains(f.Message, text) {
		t.Errorf("Diagnose says %v, %s: %s; want %v and %q", f.Level, f.Check, f.Message, level, text)
	}
}

// TestDiagnosePooler: the finding about poolers says whether the store could notice one.
func TestDiagnosePooler(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		const danger = "frees locks that their holders still trust"
		store := s.store(t, s.open(t))
		says(t, finding(t, store, "pooler"), driver.LevelOK, danger)
		says(t, finding(t, store, "replication"), driver.LevelOK, "ends all locks at once")
		db := s.open(t)
		db.SetMaxOpenConns(1)
		if s.driver == "pgx" {
			says(t, finding(t, s.store(t, db), "pooler"), driver.LevelWarning, "With a single connection the store cannot notice a pooler")
		} else {
			says(t, finding(t, s.store(t, db), "pooler"), driver.LevelOK, "does not notice a proxy")
		}
	})
}

// TestDiagnoseReplication: Diagnose warns of a failover to an asynchronous replica.
func TestDiagnoseReplication(t *testing.T) {
	t.Parallel()
	for i, pair := range []func(testing.TB, servers.PairOptions) *servers.Pair{servers.RunMariaDBPair, servers.RunPostgresPair} {
		t.Run(databases[i].kind.Name, func(t *testing.T) {
			t.Parallel()
			primary := pair(t, servers.PairOptions{}).Primary
			for _, scheme := range schemes {
				s := databases[i].alone(scheme, primary)
				says(t, finding(t, s.store(t, s.open(t)), "replication"), driver.LevelWarning, "Connected replicas: 1")
			}
		})
	}
}
