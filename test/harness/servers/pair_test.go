package servers

import (
	"strings"
	"testing"
)

// databasePairs are pairs of databases, each with its error for a rejected write.
var databasePairs = []struct {
	name     string
	run      func(t testing.TB, opts PairOptions) *Pair
	args     []string
	limit    string // reads the setting that args change
	readOnly string
}{
	{"mariadb", RunMariaDBPair, []string{"--max-connections=33"}, "SELECT @@max_connections", "--read-only"},
	{"postgres", RunPostgresPair, []string{"-c", "max_connections=33"}, "SHOW max_connections", "read-only transaction"},
}

func TestPairReplicatesAndPromotes(t *testing.T) {
	for _, pair := range databasePairs {
		t.Run(pair.name, func(t *testing.T) {
			t.Parallel()
			p := pair.run(t, PairOptions{Args: pair.args})
			for _, s := range p.all() {
				if got := sqlOf(t, s, pair.limit); got != "33" {
					t.Errorf("max_connections is %s, want 33", got)
				}
			}
			sqlOf(t, p.Primary, "CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)")
			try(t, func() error { return p.WaitCaughtUp(limit(t)) })
			rows(t, p.Replica, "1")
			p.refusesWrites(t, pair.readOnly)

			// A replica that was down catches up, and is still a replica.
			try(t, p.Replica.Kill)
			sqlOf(t, p.Primary, "INSERT INTO kept VALUES (2)")
			try(t, p.Replica.Restart)
			try(t, func() error { return p.WaitCaughtUp(limit(t)) })
			rows(t, p.Replica, "2")
			p.refusesWrites(t, pair.readOnly)

			try(t, p.Primary.Kill)
			try(t, func() error { return p.Promote(limit(t)) })
			p.write(t)
			rows(t, p.Replica, "3")
			try(t, p.Replica.Kill)
			try(t, p.Replica.Restart)
			p.write(t)
			rows(t, p.Replica, "4")

			try(t, p.Stop)
			gone(t, p.Primary.Dir())
			gone(t, p.Replica.Dir())
		})
	}
}

func TestPairCutReplicationLosesLaterWrites(t *testing.T) {
	for _, pair := range databasePairs {
		t.Run(pair.name, func(t *testing.T) {
			t.Parallel()
			var cable *relay
			p := pair.run(t, PairOptions{ReplicaOf: func(primary string) string {
				cable = newRelay(t, primary)
				return cable.Addr().String()
			}})
			sqlOf(t, p.Primary, "CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)")
			try(t, func() error { return p.WaitCaughtUp(limit(t)) })
			cable.cut()
			sqlOf(t, p.Primary, "INSERT INTO kept VALUES (2)")
			rows(t, p.Primary, "2")
			try(t, p.Primary.Kill)
			try(t, func() error { return p.Promote(limit(t)) })
			rows(t, p.Replica, "1")
		})
	}
}

func TestFailedPairStopsItsPrimary(t *testing.T) {
	t.Parallel()
	p := new(Pair)
	err := startPostgresPair(p, PairOptions{ReplicaOf: func(string) string { return "nowhere" }})
	if err == nil || p.Replica != nil {
		t.Errorf("a replica without a primary started: %v", err)
	}
	try(t, p.Stop)
	gone(t, p.Primary.Dir())
}

func rows(t *testing.T, s *Server, want string) {
	t.Helper()
	if got := sqlOf(t, s, "SELECT count(*) FROM kept"); got != want {
		t.Errorf("%s rows, want %s", got, want)
	}
}

// refusesWrites checks that the replica rejects writes of the user of its URL.
func (p *Pair) refusesWrites(t *testing.T, why string) {
	t.Helper()
	if _, err := connect(t, p.Replica.URL()).ExecContext(t.Context(), "INSERT INTO kept VALUES (0)"); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a write to the replica: %v; want that it is %s", err, why)
	}
}

func (p *Pair) write(t *testing.T) {
	t.Helper()
	if _, err := connect(t, p.Replica.URL()).ExecContext(t.Context(), "INSERT INTO kept VALUES (0)"); err != nil {
		t.Errorf("a write to the promoted replica: %v", err)
	}
}
