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
			group := p.newWorkerGroup()
			for range workers {
				group.start(false)
			}
			p.eventually(10*p.slack, func() bool { return group.read().done >= turns && group.read().workers >= 2 }, func() string {
				return fmt.Sprintf("%d processes had %d turns\n%s", workers, group.read().done, group.kill())
			})
			group.stop()
			group.check()
		},
	},
	{
		id: "killed-process", needs: []need{needWorker},
		demand: `Store.Acquire: it belongs to the owner "until TTL after the moment the store granted it": the lock of a killed process goes to others after its TTL, and not before, unless Traits.SessionBound`,
		check: func(p *probe) {
			group := p.newWorkerGroup()
			group.start(false)
			group.start(false)
			victim := group.start(true)
			p.eventually(10*p.slack, func() bool { return group.read().stalled }, func() string {
				return "the process that is to be killed did not get the lock\n" + group.kill()
			})
			if err := victim.Process.Kill(); err != nil {
				p.failf("cannot kill a worker: %v", err)
			}
			p.eventually(p.onTime, func() bool { return group.read().resumed }, func() string {
				return "a process that held the lock was killed, and no other got it"
			})
			group.stop()
			group.check()
		},
	},
}

// workerGroup is processes that share a counter and a journal in a folder.
type workerGroup struct {
	p       *probe
	job     job
	workers []*worker
}

// worker is a process that competes for the lock.
type worker struct {
	*exec.Cmd
	stdin  io.Closer // the worker ends when it is closed
	stderr bytes.Buffer
}

func (p *probe) newWorkerGroup() *workerGroup {
	dir, err := os.MkdirTemp("", "drivertest")
	if err != nil {
		p.failf("%v", err)
	}
	group := &workerGroup{p: p, job: job{
		Name:    p.name("x"),
		TTL:     p.long,
		Counter: filepath.Join(dir, "counter"),
		Journal: filepath.Join(dir, "journal"),
	}}
	p.atEnd(func(context.Context) { _ = os.RemoveAll(dir) })
	p.atEnd(func(context.Context) { group.kill() })
	return group
}

// start starts a worker. A worker that stalls acquires the lock for the short TTL and never
// releases it.
func (g *workerGroup) start(stall bool) *worker {
	task := g.job
	if task.Stall = stall; stall {
		task.TTL = g.p.ttl
	}
	text, err := json.Marshal(task)
	if err != nil {
		g.p.failf("%v", err)
	}
	w := &worker{Cmd: g.p.Worker()}
	w.Env = append(w.Environ(), WorkEnv+"="+string(text))
	w.Stderr = &w.stderr
	if w.stdin, err = w.StdinPipe(); err == nil {
		err = w.Start()
	}
	if err != nil {
		g.p.failf("cannot start a worker: %v", err)
	}
	g.workers = append(g.workers, w)
	return w
}

// stop ends all workers and waits for them.
func (g *workerGroup) stop() {
	for _, w := range g.workers {
		_ = w.stdin.Close()
	}
	for _, w := range g.workers {
		if err := w.Wait(); err != nil && w.ProcessState.Exited() { // not killed
			g.p.failf("a worker failed: %v\n%s", err, &w.stderr)
		}
	}
	g.workers = nil
}

// kill ends the workers and returns what they wrote to stderr.
func (g *workerGroup) kill() (stderr string) {
	for _, w := range g.workers {
		_ = w.Process.Kill()
		_ = w.Wait()
		stderr += w.stderr.String()
	}
	g.workers = nil
	return stderr
}

// summary is what a journal says so far.
type summary struct {
	done    int  // turns that have ended
	workers int  // processes that had one
	stalled bool // the worker that stalls has the lock
	resumed bool // another worker had the lock after it
}

func (g *workerGroup) read() (sum summary) {
	pids := make(map[int]bool)
	for _, e := range g.entries() {
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

func (g *workerGroup) entries() (all []entry) {
	text, err := os.ReadFile(g.job.Journal)
	if err != nil && !os.IsNotExist(err) {
		g.p.failf("%v", err)
	}
	for line := range bytes.Lines(text) {
		var e entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		if err := json.Unmarshal(line, &e); err != nil {
			g.p.failf("journal: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// check demands that the journal shows one worker at a time inside.
func (g *workerGroup) check() {
	var inside *entry
	var last uint64
	done := 0
	all := g.entries()
	for i, e := range all {
		if e.Stall && slices.ContainsFunc(all[:i], func(other entry) bool { return other.At.Sub(e.Sent) >= e.TTL }) {
			g.p.slowf("process %d was so slow that its TTL of %v had passed before it recorded that it has the lock", e.PID, e.TTL)
		}
	}
	for _, e := range all {
		if e.Leave {
			if inside == nil || inside.PID != e.PID {
				g.p.failf("two processes held the lock at the same time: process %d left with token %d while another was inside", e.PID, e.Token)
			}
			inside, done = nil, done+1
			continue
		}
		if inside != nil && !inside.Stall {
			g.p.failf("process %d got the lock with token %d while process %d held it with token %d", e.PID, e.Token, inside.PID, inside.Token)
		}
		if inside != nil && e.At.Sub(inside.Sent) < inside.TTL && !g.p.traits.SessionBound {
			g.p.failf("process %d got the lock %v after process %d, which was killed, had asked for it and was promised %v",
				e.PID, e.At.Sub(inside.Sent), inside.PID, inside.TTL)
		}
		if g.p.traits.Fencing != driver.FencingNone {
			g.p.rises(&last, e.Token)
		}
		inside = &e
	}
	count, err := readCounter(g.job.Counter)
	if err != nil {
		g.p.failf("%v", err)
	}
	if count != done {
		g.p.failf("%d guarded increments by several processes made %d", done, count)
	}
}

// entry is a line of the journal, which a worker writes while it holds the lock.
type entry struct {
	PID   int
	Token uint64
	TTL   time.Duration // what the store promised
	Sent  time.Time     // when the worker asked for the lock that it then got
	At    time.Time
	Stall bool `json:",omitempty"` // it never leaves
	Leave bool `json:",omitempty"`
}

// WorkEnv is the environment variable that tells a process to [Work].
const WorkEnv = "DLOCK_DRIVERTEST_WORK"

// job is the value of WorkEnv.
type job struct {
	Name    string
	TTL     time.Duration
	Counter string // a file with a number that only the holder of Name touches
	Journal string // a file to which every worker appends
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
	stdinClosed := make(chan struct{})
	go func() { // the kit closes it, or the system when the kit has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stdinClosed)
	}()
	store, err := open(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-stdinClosed:
			return store.Close()
		case <-time.After(rand.N(3 * time.Millisecond)):
		}
		if err := task.turn(ctx, store, stdinClosed); err != nil {
			return err
		}
	}
}

// turn tries once to get the lock, and does the guarded work if it gets it.
func (t *job) turn(ctx context.Context, store driver.Store, stdinClosed <-chan struct{}) error {
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
		<-stdinClosed // the kit kills this process before
		return nil
	}
	count, err := readCounter(t.Counter)
	if err != nil {
		return err
	}
	<-time.After(rand.N(time.Millisecond)) // long enough for another holder, if the store lets it in
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
