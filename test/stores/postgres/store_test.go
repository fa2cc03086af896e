package postgres

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// TestConformance, TestWaiting and TestFaults run before the parallel tests: the
// second counts what the server does, and the others keep it busy enough.
func TestConformance(t *testing.T) {
	for _, pool := range []string{"", "max_open=1"} {
		sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Conform(t, database.URL(t, scheme, pool)) })
	}
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Conform(t, pooled(t, scheme)) })
}

// pooled is a store behind PgBouncer in transaction mode, on a server of its own.
func pooled(t testing.TB, parameters ...string) string {
	t.Helper()
	server := servers.Run(t, servers.Postgres)
	bouncer := servers.Run(t, servers.PgBouncer(server, 4))
	parameters = append(parameters, "default_query_exec_mode=exec") // it knows no prepared statements
	return sqlrig.At(database.On(t, server, parameters...), bouncer.Addr())
}

func TestWaiting(t *testing.T) {
	for _, scheme := range sqlrig.Schemes {
		t.Run(scheme, func(t *testing.T) { database.WaitersAreCheap(t, "scheme="+scheme, 10) })
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

// TestPgBouncer: LISTEN has no meaning there, and waiters are woken all the same.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		raw := pooled(t, scheme)
		database.WakeUp(t, raw)
		database.OneConnection(t, raw)
		database.Command(t, raw)
	})
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

// TestIdleSessionTimeout: the server ends connections that are idle for a second.
func TestIdleSessionTimeout(t *testing.T) {
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

// TestDriverSettings: what an application sets for itself makes no difference.
func TestDriverSettings(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{
		"default_query_exec_mode=cache_statement", "default_query_exec_mode=cache_describe", "default_query_exec_mode=describe_exec",
		"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol", "timezone=Asia/Tokyo", "client_encoding=UTF8",
		"statement_timeout=10000", "standard_conforming_strings=on",
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
