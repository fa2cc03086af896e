package mysql

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// TestConformance, TestWaiting and TestFaults run before the parallel tests: the
// second counts what the server does, and the others keep it busy enough.
func TestConformance(t *testing.T) {
	for _, pool := range []string{"", "max_open=1"} {
		sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Conform(t, database.URL(t, scheme, pool)) })
	}
}

func TestWaiting(t *testing.T) {
	for _, scheme := range sqlrig.Schemes {
		t.Run(scheme, func(t *testing.T) { database.WaitersAreCheap(t, "scheme="+scheme, 30) })
	}
}

// TestPatientWriters comes before the parallel tests too: it looks at what the process
// uses.
func TestPatientWriters(t *testing.T) {
	for _, scheme := range sqlrig.Schemes {
		t.Run(scheme, func(t *testing.T) { database.PatientWriters(t, database.URL(t, "scheme="+scheme)) })
	}
}

func TestFaults(t *testing.T) {
	sqlrig.EachScheme(t, database.Faults)
}

func TestClocks(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, database.Clocks)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, database.History)
}

func TestWakeUp(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.WakeUp(t, database.URL(t, scheme)) })
}

func TestContention(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, database.Contention)
}

func TestConnections(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, database.Connections)
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, database.Restarts)
}

func TestFailover(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, database.Failover)
}

func TestSilentConnections(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.SilentConnections(t, database.URL(t, scheme)) })
}

func TestLostCommit(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.LostCommit(t, database.URL(t, scheme)) })
}

func TestLostTogether(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.LostTogether(t, database.URL(t, scheme)) })
}

func TestKilledConnections(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.KilledConnections(t, database.URL(t, scheme)) })
}

// TestWaitTimeout: the server ends connections that are idle for a second.
func TestWaitTimeout(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		database.ImpatientServer(t, database.URL(t, scheme, database.Impatient))
	})
}

func TestOneConnection(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.OneConnection(t, database.URL(t, scheme)) })
}

func TestNames(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Names(t, database.URL(t, scheme)) })
}

// emptyIsNull is a mode of MariaDB in which an empty text is NULL.
const emptyIsNull = "sql_mode=%27STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL%27"

// TestDriverSettings: what an application sets for itself makes no difference.
func TestDriverSettings(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{
		"clientFoundRows=true", "interpolateParams=true", "parseTime=true", "multiStatements=true", "columnsWithAlias=true",
		"collation=utf8mb4_unicode_ci", "charset=latin1", "sql_mode=%27ANSI%27", "sql_mode=%27ORACLE%27", "sql_mode=%27%27", "time_zone=%27-08:00%27",
		emptyIsNull,
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			raw := database.URL(t, settings)
			for _, scheme := range sqlrig.Schemes {
				database.OneConnection(t, sqlrig.With(raw, "scheme="+scheme))
			}
			database.Names(t, raw)
		})
	}
}

// TestSelectLimit: a connection on which queries answer with one row only loses no lock.
func TestSelectLimit(t *testing.T) {
	t.Parallel()
	store := database.Opened(t, database.URL(t, "sql_select_limit=1"))
	var grants []driver.Grant
	for _, name := range []string{"a", "b", "c"} {
		grant, err := store.Acquire(sqlrig.Within(t), sqlrig.Request(name))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, grant)
	}
	if err := store.Release(sqlrig.Within(t), grants[0]); err != nil {
		t.Fatal(err)
	}
	errs := store.Renew(sqlrig.Within(t), grants)
	if len(errs) != 3 || !errors.Is(errs[0], driver.ErrNotHeld) || errs[1] != nil || errs[2] != nil {
		t.Errorf("Renew of one lock that was released and two that are held: %v; want ErrNotHeld for the first only", errs)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Places(t, database.URL(t, scheme)) })
}

// TestVanishedClient: a machine falls silent in the middle of a transaction.
func TestVanishedClient(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.VanishedClient(t, database.URL(t, scheme)) })
}

// TestRenewalsComeThrough: what waits to be written does not keep renewals waiting.
func TestRenewalsComeThrough(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.RenewalsComeThrough(t, database.URL(t, scheme)) })
}

// TestRenewalsBesideALockedRow: an administrator's open transaction costs one lock, not all.
func TestRenewalsBesideALockedRow(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.RenewalsBesideALockedRow(t, database.URL(t, scheme)) })
}

// TestLateRenewal: an administrator's open transaction delays a renewal that the holder
// has long given up.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.LateRenewal(t, database.URL(t, scheme)) })
}

// TestAbandonedRenewal: the server ends a statement whose caller has left.
func TestAbandonedRenewal(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.AbandonedRenewal(t, database.URL(t, scheme)) })
}

func TestLatePlace(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.LatePlace(t, database.URL(t, scheme)) })
}

// TestLateAttempts: a request that arrives after the release of its owner leaves nothing.
func TestLateAttempts(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, database.LateAttempts)
}

func TestAttemptThatWaitsAtTheServer(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		database.AttemptThatWaitsAtTheServer(t, database.URL(t, scheme))
	})
}

// TestLateAttemptAfterPass: the owner of a late attempt has passed the lock on.
func TestLateAttemptAfterPass(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		database.LateAttemptAfterPass(t, database.URL(t, scheme))
	})
}

func TestLateBatch(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.LateBatch(t, database.URL(t, scheme)) })
}

func TestSlowReleaseAfterALostAttempt(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) {
		database.SlowReleaseAfterALostAttempt(t, database.URL(t, scheme))
	})
}

// TestLostBatch: the answer to a transaction that several calls share gets lost.
func TestLostBatch(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.LostBatch(t, database.URL(t, scheme)) })
}

// TestUndoneBatch: a transaction that several calls share fails before it is committed.
func TestUndoneBatch(t *testing.T) {
	t.Parallel()
	sqlrig.OnRow(t, func(t *testing.T, scheme string) { database.UndoneBatch(t, database.URL(t, scheme)) })
}
