package notify

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const eventLimit = 10 * time.Second

func await(t *testing.T, events <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-events:
	case <-time.After(eventLimit):
		t.Fatalf("%s was not notified within %v", what, eventLimit)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("frame"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// exercise writes, removes and creates a file that is followed.
func exercise(t *testing.T, path string, events <-chan struct{}) {
	t.Helper()
	write(t, path)
	await(t, events, "the file's creation")
	for range 20 {
		// What is left of the change before may be notified late.
		for quiet := false; !quiet; {
			select {
			case <-events:
			case <-time.After(4 * statInterval):
				quiet = true
			}
		}
		write(t, path)
		await(t, events, "a write")
	}
	for range 3 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path)
		await(t, events, "the new file")
		for drained := false; !drained; {
			select {
			case <-events:
			case <-time.After(4 * statInterval):
				drained = true
			}
		}
		write(t, path)
		await(t, events, "a write to the new file")
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	seen := File(path)
	exercise(t, path, seen.Events)
	seen.Stop()
	write(t, path)
	select {
	case <-seen.Events:
		t.Error("a write was notified after Stop")
	default:
	}
}

func TestFileThatNeverExists(t *testing.T) {
	t.Parallel()
	File(filepath.Join(t.TempDir(), "file")).Stop() // and returns
}

func TestStatFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	events, done := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		statFile(path, func() bool {
			select {
			case events <- struct{}{}:
				return true
			case <-done:
				return false
			}
		}, done)
	})
	exercise(t, path, events)
	close(done)
	work.Wait()
}
