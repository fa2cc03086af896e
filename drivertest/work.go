package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// WorkEnv is the environment variable that tells a process to [Work].
const WorkEnv = "DLOCK_DRIVERTEST_WORK"

// job is the value of WorkEnv.
type job struct {
	Name    string
	TTL     time.Duration
	Counter string // a file with a number that only the holder of Name touches
	Journal string // a file to which everybody appends
	Stall   bool   // hold the lock until killed
}

// Work is what a process that [Config].Worker started does instead of running
// tests: it contends for a lock with other processes. The result is its exit
// status. Call it from TestMain:
//
//	func TestMain(m *testing.M) {
//		if os.Getenv(drivertest.WorkEnv) != "" {
//			os.Exit(drivertest.Work(open))
//		}
//		os.Exit(m.Run())
//	}
//
// open is like Config.Open, and reaches the same state. Where that is, the
// command from Config.Worker can say in an environment variable of its own.
func Work(open func(ctx context.Context) (driver.Store, error)) int {
	if err := work(context.Background(), open); err != nil {
		fmt.Fprintln(os.Stderr, "drivertest worker:", err)
		return 1
	}
	return 0
}

func work(ctx context.Context, open func(ctx context.Context) (driver.Store, error)) error {
	var task job
	if err := json.Unmarshal([]byte(os.Getenv(WorkEnv)), &task); err != nil {
		return fmt.Errorf("%s: %w", WorkEnv, err)
	}
	home := make(chan struct{})
	go func() { // the kit closes our standard input, and so does its death
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(home)
	}()
	store, err := open(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-home:
			return store.Close()
		case <-time.After(rand.N(3 * time.Millisecond)):
		}
		if err := task.turn(ctx, store, home); err != nil {
			return err
		}
	}
}

// turn tries once to get the lock, and does the guarded work if it gets it.
func (t *job) turn(ctx context.Context, store driver.Store, home <-chan struct{}) error {
	sent := time.Now()
	grant, err := store.Acquire(ctx, driver.Request{Name: t.Name, Owner: driver.NewOwner(), TTL: t.TTL,
		Holder: driver.Holder{PID: os.Getpid(), Program: "drivertest worker"}})
	if errors.Is(err, driver.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	e := entry{PID: os.Getpid(), Token: grant.Token, TTL: grant.TTL, Sent: sent, At: time.Now(), Stall: t.Stall}
	if err := e.append(t.Journal); err != nil {
		return err
	}
	if t.Stall {
		<-home // in vain: it is killed before
		return nil
	}
	count, err := readCounter(t.Counter)
	if err != nil {
		return err
	}
	<-time.After(rand.N(time.Millisecond)) // long enough for another to get in, if he can
	if err := os.WriteFile(t.Counter, []byte(strconv.Itoa(count+1)), 0o600); err != nil {
		return err
	}
	e.Leave, e.At = true, time.Now()
	if err := e.append(t.Journal); err != nil {
		return err
	}
	return store.Release(ctx, grant)
}

// append adds a line in one write, so that lines of several processes do not mix.
func (e *entry) append(journal string) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

func readCounter(path string) (int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(text) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
