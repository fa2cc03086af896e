package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var processClauses = []clause{
	{
		id: "exclusion-processes", needs: []need{needWorker},
		demand: `Store.Acquire: "If another owner has the lock, the error is a [*HeldError]", in every process: no two hold it at once, no update is lost, and tokens rise`,
		check: func(p *probe) {
			const workers, turns = 4, 40
			shop := p.newWorkshop()
			for range workers {
				shop.hire(false)
			}
			p.eventually(10*p.slack, func() bool { return shop.read().done >= turns && shop.read().workers >= 2 }, func() string {
				return fmt.Sprintf("%d processes had %d turns\n%s", workers, shop.read().done, shop.kill())
			})
			shop.dismiss()
			shop.audit()
		},
	},
	{
		id: "killed-process", needs: []need{needWorker},
		demand: `Store.Acquire: it belongs to the owner "until TTL after the moment the store granted it": the lock of a killed process goes to others after its TTL, and not before, unless Traits.SessionBound`,
		check: func(p *probe) {
			shop := p.newWorkshop()
			shop.hire(false)
			shop.hire(false)
			victim := shop.hire(true)
			p.eventually(10*p.slack, func() bool { return shop.read().stalled }, func() string {
				return "the process that is to be killed did not get the lock\n" + shop.kill()
			})
			if err := victim.Process.Kill(); err != nil {
				p.failf("cannot kill a worker: %v", err)
			}
			p.eventually(p.onTime, func() bool { return shop.read().resumed }, func() string {
				return "a process that held the lock was killed, and no other got it"
			})
			shop.dismiss()
			shop.audit()
		},
	},
}

// workshop is a folder with a counter and a journal that processes share.
type workshop struct {
	p    *probe
	job  job
	crew []*worker
}

// worker is a process that works.
type worker struct {
	*exec.Cmd
	door   io.Closer // closing it tells the worker to go home
	stderr bytes.Buffer
}

func (p *probe) newWorkshop() *workshop {
	dir, err := os.MkdirTemp("", "drivertest")
	if err != nil {
		p.failf("%v", err)
	}
	shop := &workshop{p: p, job: job{
		Name:    p.name("x"),
		TTL:     p.long,
		Counter: filepath.Join(dir, "counter"),
		Journal: filepath.Join(dir, "journal"),
	}}
	p.atEnd(func(context.Context) { _ = os.RemoveAll(dir) })
	p.atEnd(func(context.Context) { shop.kill() })
	return shop
}

// hire starts a worker; one that stalls takes the lock for the short TTL and
// never gives it back.
func (s *workshop) hire(stall bool) *worker {
	task := s.job
	if task.Stall = stall; stall {
		task.TTL = s.p.ttl
	}
	text, err := json.Marshal(task)
	if err != nil {
		s.p.failf("%v", err)
	}
	w := &worker{Cmd: s.p.Worker()}
	w.Env = append(w.Environ(), WorkEnv+"="+string(text))
	w.Stderr = &w.stderr
	if w.door, err = w.StdinPipe(); err == nil {
		err = w.Start()
	}
	if err != nil {
		s.p.failf("cannot start a worker: %v", err)
	}
	s.crew = append(s.crew, w)
	return w
}

// dismiss ends all workers and waits for them.
func (s *workshop) dismiss() {
	for _, w := range s.crew {
		_ = w.door.Close()
	}
	for _, w := range s.crew {
		if err := w.Wait(); err != nil && w.ProcessState.Exited() { // not killed
			s.p.failf("a worker failed: %v\n%s", err, &w.stderr)
		}
	}
	s.crew = nil
}

// kill ends the workers and returns what they had to say.
func (s *workshop) kill() (said string) {
	for _, w := range s.crew {
		_ = w.Process.Kill()
		_ = w.Wait()
		said += w.stderr.String()
	}
	s.crew = nil
	return said
}

// summary is what a journal says so far.
type summary struct {
	done    int  // turns that have ended
	workers int  // processes that had one
	stalled bool // the worker that stalls has the lock
	resumed bool // another worker had the lock after it
}

func (s *workshop) read() (sum summary) {
	pids := make(map[int]bool)
	for _, e := range s.entries() {
		switch {
		case e.Leave:
			sum.done++
			pids[e.PID] = true
		case e.Stall:
			sum.stalled = true
		case sum.stalled:
			sum.resumed = true
		}
	}
	sum.workers = len(pids)
	return sum
}

func (s *workshop) entries() (all []entry) {
	text, err := os.ReadFile(s.job.Journal)
	if err != nil && !os.IsNotExist(err) {
		s.p.failf("%v", err)
	}
	for line := range bytes.Lines(text) {
		var e entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		if err := json.Unmarshal(line, &e); err != nil {
			s.p.failf("journal: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// audit demands that the journal tells of one worker at a time.
func (s *workshop) audit() {
	var inside *entry
	var last uint64
	done := 0
	all := s.entries()
	for i, e := range all {
		if e.Stall && slices.ContainsFunc(all[:i], func(other entry) bool { return other.At.Sub(e.Sent) >= e.TTL }) {
			s.p.slowf("process %d was so slow that its TTL of %v had passed before it said that it has the lock", e.PID, e.TTL)
		}
	}
	for _, e := range all {
		if e.Leave {
			if inside == nil || inside.PID != e.PID {
				s.p.failf("two processes held the lock at the same time: process %d left with token %d while another was inside", e.PID, e.Token)
			}
			inside, done = nil, done+1
			continue
		}
		if inside != nil && !inside.Stall {
			s.p.failf("process %d got the lock with token %d while process %d held it with token %d", e.PID, e.Token, inside.PID, inside.Token)
		}
		if inside != nil && e.At.Sub(inside.Sent) < inside.TTL && !s.p.traits.SessionBound {
			s.p.failf("process %d got the lock %v after process %d, which was killed, had asked for it and was promised %v",
				e.PID, e.At.Sub(inside.Sent), inside.PID, inside.TTL)
		}
		if s.p.traits.Fencing != driver.FencingNone {
			s.p.rises(&last, e.Token)
		}
		inside = &e
	}
	count, err := readCounter(s.job.Counter)
	if err != nil {
		s.p.failf("%v", err)
	}
	if count != done {
		s.p.failf("%d guarded increments by several processes made %d", done, count)
	}
}

// entry is a line of the journal, written while inside.
type entry struct {
	PID   int
	Token uint64
	TTL   time.Duration // what the store promised
	Sent  time.Time     // when the worker asked for the lock that it then got
	At    time.Time
	Stall bool `json:",omitempty"` // it will never leave
	Leave bool `json:",omitempty"`
}

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
	return strconv.Atoi(string(text))
}
