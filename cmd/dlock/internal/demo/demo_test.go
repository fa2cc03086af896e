package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
)

func TestMain(m *testing.M) {
	if status, ok := RunProcess(os.Args); ok {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// eventually polls until something is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second) // only reached by a test that fails
	for !condition() {
		select {
		case <-limit:
			t.Fatalf("it never happened that %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestFenceStopsAStaleHolder: the lock of a shop is broken between its read and its write, and
// another shop takes the lock. Without the fence both shops sell the last item, in whichever
// order they write.
func TestFenceStopsAStaleHolder(t *testing.T) {
	for _, c := range []struct {
		name                 string
		guard                Guard
		staleThink, newThink time.Duration // ten times as long for the last one, give or take a half
		stale                int           // what the first shop answers
		left                 int
	}{
		{"dlock, writes first", Dlock, 100 * time.Millisecond, 350 * time.Millisecond, http.StatusOK, -1},
		{"dlock, writes last", Dlock, 200 * time.Millisecond, 30 * time.Millisecond, http.StatusOK, -1},
		{"fenced, writes first", Fenced, 100 * time.Millisecond, 350 * time.Millisecond, http.StatusConflict, 0},
		{"fenced, writes last", Fenced, 200 * time.Millisecond, 30 * time.Millisecond, http.StatusConflict, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			task := shopTask{Guard: c.guard, Folder: folder, Table: newTable(), Processes: 2,
				Store: Store{URL: "sqlite://" + folder + "/locks.db"}, Think: c.staleThink}
			stock := newStock(t, folder, task.Table)
			if err := stock.restock(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			first := newShop(t, task)
			task.Think = c.newThink
			second := newShop(t, task)

			answer := make(chan int, 1)
			go func() { answer <- buy(t, first) }()
			breakLock(t, task.Store.URL)
			if status := buy(t, second); status != http.StatusOK {
				t.Errorf("the shop that has the lock answers %d", status)
			}
			if status := <-answer; status != c.stale {
				t.Errorf("the shop that has lost the lock answers %d, want %d", status, c.stale)
			}
			if left, err := stock.read(t.Context()); err != nil || left != c.left {
				t.Errorf("%d left, %v; want %d", left, err, c.left)
			}
		})
	}
}

// breakLock waits until the lock of the product is held, and breaks it.
func breakLock(t *testing.T, url string) {
	t.Helper()
	store, err := stores.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store.Driver, nil)
	defer client.Close()
	var token uint64
	eventually(t, "a process has the lock", func() bool {
		info, held, err := client.Find(t.Context(), OversellLock)
		if err != nil {
			t.Fatal(err)
		}
		token = info.Token
		return held
	})
	if err := client.Break(t.Context(), OversellLock, token); err != nil {
		t.Fatal(err)
	}
}

// stock makes the table of the shops.
func newStock(t *testing.T, folder, table string) *stockTable {
	t.Helper()
	db, err := openDatabase(t.Context(), "", folder, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	stock, err := openStock(db, table)
	if err != nil {
		t.Fatal(err)
	}
	if err := stock.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stock
}

// TestStockIsCreatedOrNot: a signal during the creation of the table leaves no table behind.
func TestStockIsCreatedOrNot(t *testing.T) {
	db, err := openDatabase(t.Context(), "", t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	stock, err := openStock(db, "interrupted")
	if err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stock.create(interrupted); err != nil {
		t.Errorf("create: %v", err)
	}
	if err := stock.drop(t.Context()); err != nil {
		t.Error(err)
	}
}

// shop starts the process of a shop, and returns its address.
func newShop(t *testing.T, task shopTask) (address string) {
	t.Helper()
	shops, addresses, err := child.Start[string](context.Background(), 1, shopRole, task)
	t.Cleanup(shops.Wait)
	if err != nil {
		t.Fatal(err)
	}
	return addresses[0]
}

// buy returns the status of the answer.
func buy(t *testing.T, address string) int {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/stock/reduce?id=1", address), nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func TestShopAnswersOnlyWhatItKnows(t *testing.T) {
	folder := t.TempDir()
	task := shopTask{Guard: None, Folder: folder, Table: newTable(), Processes: 1}
	newStock(t, folder, task.Table)
	address := newShop(t, task)
	for path, want := range map[string]int{
		"/stock/reduce?id=1": http.StatusGone,
		"/stock/reduce?id=2": http.StatusNotFound,
		"/stock/reduce":      http.StatusNotFound,
		"/":                  http.StatusNotFound,
	} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
}
