package stories

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/subject"
	"github.com/dlock-go/dlock/test/harness/await"
)

func TestMain(m *testing.M) {
	Programs[stage.Role] = stage.Work
	if err, ok := child.Run(Programs); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFenceStopsAStaleHolder: the lock of a shop is broken between its read and its write, and
// another shop takes the lock. Without the fence both shops sell the last item, in whichever
// order they write.
func TestFenceStopsAStaleHolder(t *testing.T) {
	for _, c := range []struct {
		name                 string
		guard                string
		staleThink, newThink time.Duration // ten times as long for the last one, give or take a half
		stale                int           // what the first shop answers
		left                 int
	}{
		{"dlock, writes first", "dlock", 100 * time.Millisecond, 350 * time.Millisecond, http.StatusOK, -1},
		{"dlock, writes last", "dlock", 200 * time.Millisecond, 30 * time.Millisecond, http.StatusOK, -1},
		{"fenced, writes first", "fenced", 100 * time.Millisecond, 350 * time.Millisecond, http.StatusConflict, 0},
		{"fenced, writes last", "fenced", 200 * time.Millisecond, 30 * time.Millisecond, http.StatusConflict, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			play(t, c.guard, func(s *stage.Stage) {
				in, stock := newStock(s, 1)
				first := s.Programs(1, "shop", shopTask{in, 2, c.staleThink})[0]
				second := s.Programs(1, "shop", shopTask{in, 2, c.newThink})[0]
				answer := make(chan int, 1)
				go func() { answer <- buy(t, first) }()
				breakLock(t, s.Server.URL(nil))
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
		})
	}
}

// play performs an experiment with a guard.
func play(t *testing.T, guard string, play func(s *stage.Stage)) {
	t.Helper()
	server, err := startFile()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if r := stage.Perform(t.Context(), stage.Experiment{Subject: subject.Named(guard), Server: server, TTL: oversell.TTL, Play: play}); r.Err != "" {
		t.Error(r.Err)
	}
}

// breakLock waits until the lock of the product is held, and breaks it.
func breakLock(t *testing.T, url string) {
	t.Helper()
	store, err := subject.OpenStore(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()
	var token uint64
	await.Until(t, "a process has the lock", func() bool {
		info, held, err := client.Find(t.Context(), stage.LockName)
		if err != nil {
			t.Fatal(err)
		}
		token = info.Token
		return held
	})
	if err := client.Break(t.Context(), stage.LockName, token); err != nil {
		t.Fatal(err)
	}
}

// TestStockIsCreatedOrNot: a signal during the creation of the table leaves no table behind.
func TestStockIsCreatedOrNot(t *testing.T) {
	stock, err := place{File: filepath.Join(t.TempDir(), "stock.db"), Table: "interrupted"}.open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stock.db.Close() })
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stock.create(interrupted, 1); err != nil {
		t.Errorf("create: %v", err)
	}
	if err := stock.drop(t.Context()); err != nil {
		t.Error(err)
	}
}

// buy returns the status of a shop's answer.
func buy(t *testing.T, shop *stage.Process) int {
	answer, err := http.Post(shop.Says, "", nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}
