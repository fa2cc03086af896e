package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/child"
)

// mostAreNotified fails if more than a fifth of n wake-ups come so late that only the poll once a
// second can have caused them. On a busy machine it may take several rounds to see the others.
func mostAreNotified(t *testing.T, n int, wakeUp func() time.Duration) {
	t.Helper()
	const rounds = 5
	var took []time.Duration
	for range rounds {
		took = nil
		for range n {
			took = append(took, wakeUp())
		}
		slices.Sort(took)
		if took[n*4/5] <= 500*time.Millisecond {
			return
		}
	}
	t.Errorf("wake-ups take %v in the last of %d rounds", took, rounds)
}

// process is the test binary in one of its roles. It answers lines by lines.
type process struct {
	*child.Process
	t testing.TB
}

func startProcess(t testing.TB, role string, args ...string) process {
	t.Helper()
	return process{child.Run(t, bundle.Role(role, args...)), t}
}

func (p process) tell(line string) {
	p.t.Helper()
	if err := p.Send(line); err != nil {
		p.t.Fatalf("tell the other process %q: %v", line, err)
	}
}

func (p process) hear() string {
	p.t.Helper()
	line, err := p.Receive(await.Limit)
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

func (p process) hearNumber() int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(p.hear(), 10, 64)
	if err != nil {
		p.t.Fatalf("the other process did not say a number: %v", err)
	}
	return n
}

// agent acquires and releases on orders from stdin. It answers with the time when it has the
// lock, and when it begins to release the lock.
func agent(args []string) error {
	ctx := context.Background()
	store, err := openFile(ctx, args[0])
	if err != nil {
		return err
	}
	defer store.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		grant, err := store.Acquire(ctx, driver.Request{Name: lines.Text(), Owner: driver.NewOwner(), TTL: time.Minute})
		if err != nil {
			return err
		}
		fmt.Println("held")
		lines.Scan()
		begin := time.Now().UnixNano()
		if err := store.Release(ctx, grant); err != nil {
			return err
		}
		fmt.Println(begin)
	}
	return nil
}

// handOver lets the other process have the lock and release it, and is how long
// it takes from the moment that begins until this one has it.
func handOver(t testing.TB, store *sqllock.Store, other process) time.Duration {
	t.Helper()
	other.tell("x")
	other.hear()
	req := request("x")
	woken, stop := watch(t, store, req)
	defer stop()
	other.tell("release")
	for {
		await.Event(t, woken, "wake-up")
		grant, err := store.Acquire(t.Context(), req)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		check(t, err)
		end := time.Now().UnixNano()
		mustRelease(t, store, grant)
		return time.Duration(end - other.hearNumber())
	}
}

// TestHandOver: a release in one process wakes the waiter in another, which does not
// depend on its poll once a second. BenchmarkHandOver says how soon.
func TestHandOver(t *testing.T) {
	path := tempFile(t)
	store, other := openStore(t, path), startProcess(t, "agent", path)
	mostAreNotified(t, 21, func() time.Duration { return handOver(t, store, other) })
}

// busy acquires and releases for ever and says the tokens.
func busy(args []string) error {
	ctx := context.Background()
	store, err := openFile(ctx, args[0])
	if err != nil {
		return err
	}
	for {
		req := request("x")
		req.TTL = 200 * time.Millisecond
		grant, err := store.Acquire(ctx, req)
		if err != nil {
			return err
		}
		fmt.Println(grant.Token)
		if err := store.Release(ctx, grant); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
}

// TestKilledWriter kills a process in the middle of what it does, again and
// again: nothing is damaged, no token comes twice, and the lock gets free.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	db := openDB(t, path)
	store := newStore(t, db)
	last := uint64(0)
	for range 8 {
		victim := startProcess(t, "busy", path)
		said := int64(0)
		for range 1 + rand.IntN(40) {
			said = victim.hearNumber()
		}
		victim.Kill()
		if uint64(said) <= last {
			t.Errorf("token %d was granted after %d", said, last)
		}
		grant := acquireSoon(t, store, "x")
		if grant.Token <= uint64(said) {
			t.Errorf("token %d was granted after %d", grant.Token, said)
		}
		last = grant.Token
		mustRelease(t, store, grant)
		var verdict string
		if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
			t.Fatalf("integrity_check after a kill: %q, %v", verdict, err)
		}
	}
}

// TestWALIsRecreated: the log that tells of changes goes away with the last
// connection and comes back with the next, and waiters still are woken soon.
func TestWALIsRecreated(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	var stores []*sqllock.Store
	for range 2 {
		db := open(t, sqllock.SQLiteDSN(path))
		db.SetMaxIdleConns(-1) // every call opens and closes the file
		stores = append(stores, newStore(t, db))
	}
	mostAreNotified(t, 9, func() time.Duration {
		grant := mustAcquire(t, stores[0], request("x"))
		woken, stop := watch(t, stores[1], request("x"))
		defer stop()
		start := time.Now()
		mustRelease(t, stores[0], grant)
		await.Event(t, woken, "wake-up")
		return time.Since(start)
	})
}

// watch watches as a client does; the channel says that trying is worth it.
func watch(t testing.TB, store driver.Watcher, req driver.Request) (woken <-chan struct{}, stop func()) {
	t.Helper()
	events := make(chan struct{}, 1)
	stop, err := store.Watch(t.Context(), req, func() {
		select {
		case events <- struct{}{}:
		default:
		}
	})
	check(t, err)
	return events, stop
}

// acquireSoon waits for name as a client does.
func acquireSoon(t testing.TB, store interface {
	driver.Store
	driver.Watcher
}, name string) driver.Grant {
	t.Helper()
	req := request(name)
	woken, stop := watch(t, store, req)
	defer stop()
	for {
		grant, err := store.Acquire(t.Context(), req)
		if err == nil {
			return grant
		}
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		await.Event(t, woken, "wake-up for "+name)
	}
}
