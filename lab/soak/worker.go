package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/lab/subject"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/test/harness/history"
)

// Role is the role of a process of a soak. Its task is a [job].
const Role = "soak"

// job is what a process of a soak does.
type job struct {
	Role    string        `json:"role"`
	Process int           `json:"process"`
	Clients int           `json:"clients"`
	URL     string        `json:"url"` // empty for a store in memory
	TTL     time.Duration `json:"ttl"`
	Pace    time.Duration `json:"pace"`
}

// line is what a process reports: an event whose worker is a client, counted over all processes. OK says that
// the lease was alive at To of an acquisition, at From of an end without error.
type line struct {
	history.Event
	Measure *Measure `json:"measure,omitempty"`
}

// Another kind of event.
const marked = "marked" // all events before To have been reported

const (
	markEvery = 50 * time.Millisecond
	warmUp    = 3 * time.Second // before the first measurement
)

// worker is a process of a soak: it locks all the time.
type worker struct {
	job
	ctx   context.Context // ends after the order to stop
	holds atomic.Int64

	resting sync.RWMutex // a measurement excludes locking
	loops   atomic.Int32 // that run
	stamps  sync.RWMutex // a mark excludes events whose time is known and that are not reported yet
	out     sync.Mutex
	lines   *json.Encoder
}

// Work is the main function of a process of a soak. It locks until its input ends.
func Work(task []byte) error {
	var j job
	if err := json.Unmarshal(task, &j); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin)) // its end is the order to stop
		stop()
	}()
	w := &worker{job: j, ctx: ctx, lines: json.NewEncoder(os.Stdout)}
	w.run()
	return nil
}

func (w *worker) run() {
	var loops, marks sync.WaitGroup
	ended := make(chan struct{})
	marks.Go(func() { w.mark(ended) })
	defer marks.Wait()
	defer close(ended)
	shared := driver.Store(memlock.New())
	var stores []driver.Store
	var clients []*dlock.Client
	for i := range w.Clients {
		store := shared
		if w.URL != "" {
			if store = w.open(); store == nil {
				return
			}
		}
		// A third of the TTL leaves time to repeat a request whose answer was lost.
		client := dlock.New(store, &dlock.Options{TTL: w.TTL, RequestTimeout: w.TTL / 3})
		stores, clients = append(stores, store), append(clients, client)
		for _, d := range duties(store.Traits(), w.TTL, w.Pace) {
			w.loops.Add(1)
			loops.Go(func() {
				defer w.loops.Add(-1)
				w.loop(client, w.Process*w.Clients+i, d)
			})
		}
	}
	if w.sleep(warmUp) {
		w.measure()
	}
	loops.Wait()
	w.measure()
	for i := range clients {
		_ = clients[i].Close() // a lock that cannot be released now expires
		_ = stores[i].Close()
	}
}

// open opens the store. The server may be away. It returns nil after the order to stop.
func (w *worker) open() driver.Store {
	for {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		store, err := subject.OpenStore(ctx, w.URL)
		cancel()
		if err == nil {
			return store
		}
		fmt.Fprintln(os.Stderr, "open:", err)
		if !w.sleep(50 * time.Millisecond) {
			return nil
		}
	}
}

// mark reports again and again how far the report is complete.
func (w *worker) mark(ended <-chan struct{}) {
	for {
		w.stamps.Lock()
		w.report(line{Event: history.Event{Kind: marked, To: history.Now()}})
		w.stamps.Unlock()
		select {
		case <-time.After(markEvery):
		case <-ended:
			return
		}
	}
}

// measure measures the process while its loops rest.
func (w *worker) measure() {
	w.resting.Lock()
	defer w.resting.Unlock()
	m := measure()
	m.Goroutines -= int(w.loops.Load()) // a loop may end meanwhile
	w.report(line{Measure: &m})
}

func (w *worker) report(l line) {
	w.out.Lock()
	defer w.out.Unlock()
	_ = w.lines.Encode(l) // the soak has ended
}

// sleep reports whether the process may go on.
func (w *worker) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *worker) loop(c *dlock.Client, client int, d duty) {
	for w.ctx.Err() == nil {
		w.resting.RLock()
		pause := d.pause
		if !w.once(c, client, d) {
			pause = w.TTL / 20
		}
		w.resting.RUnlock()
		w.sleep(d.rest + rand.N(pause+1))
	}
}

// held is a lease, or several.
type held interface {
	Context() context.Context
	Remaining() time.Duration
	Unlock(ctx context.Context) error
}

// once acquires a lock, keeps it for a while and releases it. It reports whether it got the
// lock.
func (w *worker) once(c *dlock.Client, client int, d duty) bool {
	mode, opts := d.mode()
	names := d.choose()
	tokens := make([]uint64, len(names))
	var lease held
	var err error
	from := history.Now()
	opts = append(opts, dlock.WithWait(4*d.ttl))
	if d.batch {
		var leases *dlock.Leases
		if leases, err = c.LockAll(w.ctx, names, opts...); err == nil {
			lease = leases
			for i, name := range names {
				tokens[i] = leases.Token(name)
			}
		}
	} else {
		var one *dlock.Lease
		if one, err = c.Lock(w.ctx, names[0], opts...); err == nil {
			lease, tokens[0] = one, one.Token()
		}
	}
	if err != nil {
		w.report(line{Event: history.Event{Kind: history.Failed, Name: names[0]}})
		return false
	}
	hold := fmt.Sprintf("%d.%d.%d", w.Process, os.Getpid(), w.holds.Add(1))
	event := history.Event{Kind: history.Acquired, Worker: client, Hold: hold, Mode: mode, From: from}
	until := time.Now().Add(rand.N(d.hold + 1))
	alive := w.check(lease, func(at int64) {
		event.To, event.OK = at, true
		w.reportEach(event, names, tokens)
	})
	last := event.To
	for alive && time.Now().Before(until) && w.ctx.Err() == nil {
		step := w.TTL / 50
		if lease.Remaining() < 2*step {
			step = time.Millisecond // a lease that is about to end is checked all the time
		}
		time.Sleep(min(step, time.Until(until)))
		alive = w.check(lease, func(at int64) { last = at })
	}
	err = lease.Unlock(context.Background())
	if !event.OK {
		return true // lost before it was used: it was never trusted
	}
	w.stamps.RLock()
	defer w.stamps.RUnlock()
	event.Kind, event.From, event.To, event.OK = history.Ended, last, history.Now(), alive && err == nil
	w.reportEach(event, names, tokens)
	return true
}

// check reports whether the lease is alive. If it is, trusted is called with a time before
// the check: the lease is trusted at that time.
func (w *worker) check(lease held, trusted func(at int64)) bool {
	w.stamps.RLock()
	defer w.stamps.RUnlock()
	now := history.Now()
	if lease.Context().Err() != nil {
		return false
	}
	trusted(now)
	return true
}

func (w *worker) reportEach(event history.Event, names []string, tokens []uint64) {
	for i, name := range names {
		event.Name, event.Token = name, tokens[i]
		w.report(line{Event: event})
	}
}
