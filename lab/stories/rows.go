//go:build linux

package stories

import (
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var rowForever = Story{
	Number: 21, Name: "row-never-removed", TTL: time.Second,
	Title: "The row that is the lock is never removed, because its process died",
	Tells: "A inserts a row and dies. If the row has no expiry, nobody removes it, and B waits for ever.",
	On: []Place{
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/row-forever", stage.Stuck), ours("postgres")}},
		{"mysql", run(servers.MariaDB, ""), []Case{ours("mysql")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		a.Kill()
		turn(b)
	},
}

var rowClientClock = Story{
	Number: 22, Name: "clock-of-the-database", TTL: 2 * time.Second,
	Title: "The expiry in the row is a time of the client's clock",
	Tells: "The clock of B is an hour ahead. If the row's expiry is compared with the clock of B, B takes a lock that A has. dlock compares times of the database only.",
	On: []Place{
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/row-client-clock", stage.TwoHolders), ours("postgres")}},
	},
	Play: clientClocks.Play,
}

var vanishedTransaction = Story{
	Number: 23, Name: "open-transaction", TTL: 2 * time.Second,
	Title: "The machine of a FOR UPDATE holder vanishes, and its transaction stays open",
	Tells: "A holds a row with SELECT ... FOR UPDATE. Its network is gone without a word. The database keeps the transaction, and with it the lock, until TCP gives up, which takes minutes or hours. " +
		"dlock's scheme forupdate has the same limit, which its page says; its rows with an expiry do not.",
	On: []Place{
		{"forupdate", run(servers.Postgres, "scheme=forupdate"), []Case{ours("forupdate", stage.Stuck)}},
		{"postgres", run(servers.Postgres, ""), []Case{caught("postgres/for-update", stage.Stuck), ours("postgres")}},
	},
	Play: func(s *stage.Stage) {
		a, b := s.Process("A"), s.Process("B")
		a.Lock()
		a.Deposit()
		a.Proxies[0].Hold()
		s.Harm("the network of A is gone")
		a.Kill()
		turn(b)
	},
}
