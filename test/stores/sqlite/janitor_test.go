package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/faults"
)

func number(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// age makes everything two hours older, so that the janitor of the next store runs.
func age(t testing.TB, db *sql.DB) {
	t.Helper()
	run(t, db, `UPDATE dlock_locks SET since = since - 7200000, expires = expires - 7200000 WHERE owner IS NULL OR expires <= unixepoch('subsec') * 1000`)
	run(t, db, `UPDATE dlock_meta SET value = 0 WHERE key = 'swept'`)
}

// ageAfterJanitor is age after the janitor of the first store: one that comes later would claim the run of the next.
func ageAfterJanitor(t testing.TB, db *sql.DB) {
	t.Helper()
	await.Until(t, "the first janitor has run", func() bool {
		return number(t, db, `SELECT value FROM dlock_meta WHERE key = 'swept'`) > 0
	})
	age(t, db)
}

func TestJanitor(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	store := newStore(t, db)
	const names = 1200 // more than the janitor deletes at once
	var reqs []driver.Request
	for i := range names {
		reqs = append(reqs, request(fmt.Sprintf("name/%d", i)))
	}
	grants, err := store.AcquireAll(t.Context(), reqs)
	check(t, err)
	for _, grant := range grants[:names-3] {
		mustRelease(t, store, grant)
	}
	for range 9 {
		mustRelease(t, store, mustAcquire(t, store, request("name/7")))
	}
	mustRenew(t, store, grants[names-3:]...)
	ageAfterJanitor(t, db)
	young := mustAcquire(t, store, request("young"))
	mustRelease(t, store, young)

	other := openStore(t, path)
	await.Until(t, "the janitor has deleted the unused rows", func() bool {
		return number(t, db, `SELECT count(*) FROM dlock_locks`) <= 4
	})
	if n := number(t, db, `SELECT count(*) FROM dlock_locks`); n != 4 {
		t.Errorf("%d rows are left, want the 3 that are held and the young one", n)
	}
	highest := 10 * int64(store.Traits().TokenStep)
	if floor := number(t, db, `SELECT value FROM dlock_meta WHERE key = 'floor'`); floor != highest {
		t.Errorf("the floor is %d, want the highest token deleted, %d", floor, highest)
	}
	for _, name := range []string{"name/7", "name/8", "never seen"} {
		if grant := mustAcquire(t, other, request(name)); grant.Token != uint64(highest)+1 {
			t.Errorf("%q came back with token %d, want %d", name, grant.Token, highest+1)
		}
	}
	mustRenew(t, other, grants[names-3:]...)
}

// TestJanitorDeletesAllPlaces: a run of the janitor deletes all places that have expired, however many.
func TestJanitorDeletesAllPlaces(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	newStore(t, db)
	ageAfterJanitor(t, db)
	const insert = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
INSERT INTO dlock_queue (name, owner, mode, fair, expires) SELECT 'name/' || i, 'owner', 'exclusive', 1, 1000 FROM n`
	run(t, db, insert)
	openStore(t, path)
	await.Until(t, "no expired place is left", func() bool { return number(t, db, `SELECT count(*) FROM dlock_queue`) == 0 })
}

// TestJanitorSparesWhatIsTaken: a lock that is taken after the janitor has found its row unused
// is not deleted.
func TestJanitorSparesWhatIsTaken(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	store := newStore(t, db)
	taken := mustAcquire(t, store, request("taken"))
	mustRelease(t, store, taken)
	for range 9 { // so that the token of the lock that is taken is below the floor
		mustRelease(t, store, mustAcquire(t, store, request("unused")))
	}
	// The floor is raised between the reading of the rows and their deletion.
	const retake = `CREATE TRIGGER retake AFTER UPDATE ON dlock_meta WHEN NEW.key = 'floor' BEGIN
	UPDATE dlock_locks SET owner = 'somebody', token = token + 1, expires = unixepoch() * 1000 + 60000 WHERE name = 'taken';
END`
	run(t, db, retake)
	ageAfterJanitor(t, db)
	other := openStore(t, path)
	await.Until(t, "the janitor has deleted the unused row", func() bool {
		return number(t, db, `SELECT count(*) FROM dlock_locks WHERE name = 'unused'`) == 0
	})
	if _, err := other.Acquire(t.Context(), request("taken")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a lock that was taken while the janitor ran: want ErrHeld, got: %v", err)
	}
}

// TestTokensRiseAcrossJanitorRuns runs the janitor without pause while other stores lock and unlock.
func TestTokensRiseAcrossJanitorRuns(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	store := newStore(t, db)
	stop := faults.WatchTokens(t, store, 3, 200, request)
	defer stop()
	const wanted = 5
	deadline := time.Now().Add(await.Limit)
	for cleaned := 0; cleaned < wanted; {
		if time.Now().After(deadline) {
			t.Errorf("%d janitors deleted a row, want %d", cleaned, wanted)
			break
		}
		before := number(t, db, `SELECT value FROM dlock_meta WHERE key = 'floor'`)
		age(t, db)
		janitor, err := openFile(t.Context(), path)
		check(t, err)
		await.Until(t, "no old row is left", func() bool {
			return number(t, db, `SELECT count(*) FROM dlock_locks WHERE expires <= (unixepoch('subsec') - 3600) * 1000`) == 0
		})
		check(t, janitor.Close())
		if number(t, db, `SELECT value FROM dlock_meta WHERE key = 'floor'`) > before {
			cleaned++
		}
	}
}
