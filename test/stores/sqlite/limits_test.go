package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// TestOneConnection uses everything at once over a single connection.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	db := open(t, sqllock.SQLiteDSN(tempFile(t)))
	db.SetMaxOpenConns(1)
	client := dlock.New(newStore(t, db), nil)
	closeAfter(t, client)
	modes := [][]dlock.Option{nil, {dlock.WithFair()}, {dlock.WithShared()}}
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for turn := range 9 {
				err := client.Do(ctx, fmt.Sprintf("name/%d", i%4), func(ctx context.Context) error {
					for info, err := range client.Locks(ctx, "") {
						if err != nil {
							return err
						}
						if _, _, err := client.Find(ctx, info.Name); err != nil { // while listing
							return err
						}
					}
					return nil
				}, modes[turn%len(modes)]...)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	_, err := client.Diagnose(ctx)
	check(t, err)
}

// TestManyLocks: of more locks than one statement renews or lists, none is forgotten.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	store := openStore(t, tempFile(t))
	const names, lost = 1100, 1050
	var reqs []driver.Request
	for i := range names {
		reqs = append(reqs, request(fmt.Sprintf("p/%d", i)))
	}
	grants, err := store.AcquireAll(t.Context(), append(reqs, request("q")))
	check(t, err)
	seen := make(map[string]bool)
	for info, err := range store.List(t.Context(), "p/") {
		if err != nil || seen[info.Name] {
			t.Fatalf("%q again, or %v", info.Name, err)
		}
		seen[info.Name] = true
	}
	if len(seen) != names {
		t.Errorf("%d locks are listed, want %d", len(seen), names)
	}
	mustRelease(t, store, grants[lost])
	errs := store.Renew(t.Context(), grants)
	if len(errs) != len(grants) {
		t.Fatalf("%d errors for %d grants, one of which was released", len(errs), len(grants))
	}
	for i, err := range errs {
		if (i == lost) != errors.Is(err, driver.ErrNotHeld) || i != lost && err != nil {
			t.Errorf("grant %d: %v; want ErrNotHeld for grant %d alone", i, err, lost)
		}
	}
}

// TestPaths opens files whose names mean something in a data source name.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.db", "with space.db", "50%.db", "%41.db", "what?.db", "a#b.db", "a&b=c.db", "ä🔒.db", "a;b.db", "a'b.db", `a"b.db`, `back\slash.db`} {
		path := filepath.Join(t.TempDir(), name)
		openStore(t, path)
		found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.db"))
		if err != nil || !slices.Equal(found, []string{path}) {
			t.Errorf("opening %q created %q, %v", path, found, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := open(t, sqllock.SQLiteDSN(path))
	for _, prefix := range []string{"a-b", "1a", "x;drop", "ä", strings.Repeat("x", 41), "a b", `a"`} {
		if _, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.SQLite, TablePrefix: prefix}); err == nil {
			t.Errorf("table prefix %q is accepted", prefix)
		}
		if _, err := sqllock.Schema(sqllock.SQLite, prefix); err == nil {
			t.Errorf("table prefix %q is accepted for a schema", prefix)
		}
	}
	if _, err := sqllock.New(t.Context(), db, nil); err == nil {
		t.Error("a store without a dialect is accepted")
	}
	texts, err := sqllock.Schema(sqllock.SQLite, "By_Hand_2")
	check(t, err)
	for _, text := range texts {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	byHand, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.SQLite, TablePrefix: "By_Hand_2"})
	check(t, err)
	defer byHand.Close()
	mustAcquire(t, byHand, request("x"))
	mustAcquire(t, newStore(t, db), request("x")) // another prefix is another world
}

// TestCancelledWhileBusy: a call returns soon after its context ends although
// another process keeps the database locked, and leaves no transaction open.
func TestCancelledWhileBusy(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store := openStore(t, path)
	db := openDB(t, path)
	for _, test := range []struct {
		name string
		call func(context.Context) error
	}{
		{"acquire", func(ctx context.Context) error { _, err := store.Acquire(ctx, request("x")); return err }},
		{"fair", func(ctx context.Context) error {
			req := request("x")
			req.Fair, req.Queue = true, true
			_, err := store.Acquire(ctx, req)
			return err
		}},
		{"all", func(ctx context.Context) error {
			_, err := store.AcquireAll(ctx, []driver.Request{request("x"), request("y")})
			return err
		}},
		{"release", func(ctx context.Context) error { return store.Release(ctx, driver.Grant{Name: "x"}) }},
		{"renew", func(ctx context.Context) error { return store.Renew(ctx, []driver.Grant{{Name: "x"}})[0] }},
	} {
		blocker, err := db.Begin() // immediate
		check(t, err)
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
		start := time.Now()
		err = test.call(ctx)
		took := time.Since(start)
		cancel()
		if !errors.Is(err, cause) || took > 5*time.Second { // the store goes on for ten
			t.Errorf("%s on a locked database, cancelled after 50 ms: %v after %v", test.name, err, took)
		}
		check(t, blocker.Rollback())
		ended := make(chan error, 1)
		go func() {
			_, err := db.Exec(`UPDATE dlock_meta SET value = value`) // waits for open transactions
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("after %s: %v", test.name, err)
			}
		case <-time.After(await.Limit):
			t.Fatalf("%s left a transaction open", test.name)
		}
	}
	// What was cancelled may have been done all the same, hence another name.
	mustAcquire(t, store, request("z"))
}

// TestOtherSettings: a database that was opened in the user's own way works.
func TestOtherSettings(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"rollback journal": "?_pragma=journal_mode(DELETE)",
		"deferred":         "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)",
		"UTF-16":           "?_pragma=encoding('UTF-16')&_txlock=exclusive",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tempFile(t)
			a, b := newStore(t, open(t, "file:"+path+settings)), newStore(t, open(t, "file:"+path+settings))
			var work sync.WaitGroup
			for i, store := range []*sqllock.Store{a, b, a, b} {
				work.Go(func() {
					for range 5 {
						mustRelease(t, store, acquireSoon(t, store, "x"))
						mustRelease(t, store, mustAcquire(t, store, request(fmt.Sprintf("ä%d", i))))
					}
				})
			}
			work.Wait()
		})
	}
}

// TestFileWithoutLocksIsRefused: if the settings turn SQLite's locks off, two processes could hold a lock.
func TestFileWithoutLocksIsRefused(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"nolock=1", "vfs=unix-none", "nolock=1&_pragma=journal_mode(WAL)"} {
		db := open(t, "file:"+tempFile(t)+"?_pragma=busy_timeout(60000)&"+setting)
		opts := &sqllock.Options{Dialect: sqllock.SQLite}
		if _, err := sqllock.New(t.Context(), db, opts); !errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), "nolock") {
			t.Errorf("%s: %v; want ErrMisconfigured and the name of the setting", setting, err)
		}
		db.SetMaxOpenConns(1) // so that New cannot know
		store := newStore(t, db)
		if f := finding(t, store, "locking"); f.Level != driver.LevelOK {
			t.Errorf("%s over a single connection: %+v", setting, f)
		}
		db.SetMaxOpenConns(2)
		if f := finding(t, store, "locking"); f.Level != driver.LevelProblem || f.Breaks != driver.PromiseExclusion {
			t.Errorf("%s: %+v; want a problem", setting, f)
		}
	}
}

// TestLocksAreTestedWhilePoolIsInUse: the test of the file's locks leaves no transaction behind if the program
// uses the connection that it waits for. With it, no other connection could write.
func TestLocksAreTestedWhilePoolIsInUse(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	db.SetMaxOpenConns(2)
	store := newStore(t, db)
	used, err := db.Conn(t.Context())
	check(t, err)
	if f := finding(t, store, "locking"); !strings.Contains(f.Message, "Not tested") {
		t.Errorf("with a pool that is in use: %+v", f)
	}
	run(t, used, `PRAGMA busy_timeout = 0`)
	if _, err := used.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Errorf("after the test: %v", err)
	}
	_ = used.Close()
}

func TestMemoryDatabase(t *testing.T) {
	t.Parallel()
	db := open(t, ":memory:")
	db.SetMaxOpenConns(1)
	store := newStore(t, db)
	grant := mustAcquire(t, store, request("x"))
	woken, stop := watch(t, store, request("x"))
	defer stop()
	mustRelease(t, store, grant)
	await.Event(t, woken, "wake-up")
	if level := finding(t, store, "file").Level; level != driver.LevelWarning {
		t.Errorf("Diagnose grades a database in memory %q", level)
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store := openStore(t, path)
	for _, check := range []string{"file", "locking", "journal_mode", "synchronous", "tables", "writable"} {
		if f := finding(t, store, check); f.Level != driver.LevelOK {
			t.Errorf("a store as recommended: %+v", f)
		}
	}
	weak := newStore(t, open(t, "file:"+tempFile(t)+"?_pragma=journal_mode(DELETE)&_pragma=synchronous(NORMAL)"))
	for _, check := range []string{"journal_mode", "synchronous"} {
		if f := finding(t, weak, check); f.Level != driver.LevelWarning {
			t.Errorf("a store that promises less: %+v", f)
		}
	}
	run(t, openDB(t, path), `DROP TABLE dlock_queue`)
	if f := finding(t, store, "tables"); f.Level != driver.LevelProblem {
		t.Errorf("a store without its tables: %+v", f)
	}
}
