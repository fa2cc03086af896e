package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/history"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Mix runs many faults at once. Workers contend for locks, each through a proxy
// of its own, and the test disturbs each worker at random. Run records what the
// workers did and compares it with what the library promises. If the store has shared
// locks or semaphores, two more workers and a name of each kind join. The rig needs
// Addr, At and Delete.
type Mix struct {
	Seed    uint64 // decides the faults, but not the scheduling
	Time    time.Duration
	Workers int
	Names   []string
	// Hold is the longest time for which a worker holds a lock.
	Hold time.Duration
	// Pause is the longest time between two disturbances of a worker. The default
	// is the TTL.
	Pause time.Duration
	// Disturbances names the disturbances to choose from. The default is all
	// disturbances.
	Disturbances []string
	// Store, if not nil, turns the workers into goroutines, each with the store
	// that Store returns for the address of its proxy. Goroutines cannot be
	// killed or paused.
	Store func(addr string) driver.Store
}

// disturbance affects one worker for a while.
type disturbance struct {
	name    string
	process bool // applies to processes only
	do      func(t testing.TB, w *workerHandle, d time.Duration)
}

var disturbances = []disturbance{
	{"kill", true, func(t testing.TB, w *workerHandle, _ time.Duration) {
		w.process.Kill()
		w.mix.record.died(w.id)
		w.start(t)
	}},
	{"pause", true, func(t testing.TB, w *workerHandle, d time.Duration) {
		_ = w.process.Pause() // it may have ended
		wait(t, d)
		_ = w.process.Resume()
	}},
	{"hold", false, func(t testing.TB, w *workerHandle, d time.Duration) { w.holdTraffic(t, d) }},
	{"hold requests", false, func(t testing.TB, w *workerHandle, d time.Duration) { w.holdTraffic(t, d, proxy.Requests) }},
	{"hold replies", false, func(t testing.TB, w *workerHandle, d time.Duration) { w.holdTraffic(t, d, proxy.Replies) }},
	{"lose reply", false, func(t testing.TB, w *workerHandle, _ time.Duration) { w.proxy.LoseReply(w.mix.mentions, false) }},
	{"reset", false, func(t testing.TB, w *workerHandle, _ time.Duration) { w.proxy.Reset() }},
	{"hang", false, func(t testing.TB, w *workerHandle, d time.Duration) {
		w.proxy.Hang(true)
		w.proxy.Reset()
		wait(t, d)
		w.proxy.Hang(false)
		w.proxy.Reset()
	}},
	{"delay", false, func(t testing.TB, w *workerHandle, d time.Duration) {
		w.proxy.Delay(d / 20)
		wait(t, d)
		w.proxy.Delay(0)
	}},
	{"delete", false, func(_ testing.TB, w *workerHandle, _ time.Duration) { w.mix.deleteLock(w.random) }},
}

// mixRun is a running Mix.
type mixRun struct {
	Mix
	t      testing.TB
	rig    rig
	record *recorder
	names  []string // Names, and those of other modes

	mu       sync.Mutex
	resource map[string]*fenced
	done     map[string]int // count of disturbances, by name
}

// workerHandle is the test's side of a worker: its process or goroutine, the
// proxy between it and the server, and the source of its disturbances.
type workerHandle struct {
	mix    *mixRun
	id     int
	rig    rig
	proxy  *proxy.Proxy
	random *rand.Rand

	process *child.Process // nil if the worker is a goroutine
	mu      sync.Mutex     // guards send
	send    func(order) error
	gone    <-chan struct{} // closed after the last output of the worker was received
}

// Run returns the violations of the promises; none means success.
func (m Mix) Run(t testing.TB, s bundle.Store) []string {
	t.Helper()
	r := rig{s}
	if m.Pause == 0 {
		m.Pause = r.TTL
	}
	mix := &mixRun{Mix: m, t: t, rig: r, record: newRecorder(), names: m.Names, resource: make(map[string]*fenced), done: make(map[string]int)}
	if m.Store == nil {
		if modes := modeNames(r.open(t).Traits()); len(modes) > 0 {
			mix.names = slices.Concat(m.Names, modes)
			m.Workers += 2
		}
	}
	var all sync.WaitGroup
	end := time.Now().Add(m.Time)
	workers := make([]*workerHandle, m.Workers)
	for i := range workers {
		through, p := r.proxied(t)
		workers[i] = &workerHandle{mix: mix, id: i, rig: through, proxy: p, random: rand.New(rand.NewPCG(m.Seed, uint64(i)))}
		workers[i].start(t)
	}
	for _, w := range workers {
		all.Go(func() { w.disturbUntil(t, end) })
	}
	all.Wait()
	for _, w := range workers {
		all.Go(func() { w.stop(t) })
	}
	all.Wait()
	t.Logf("seed %d: %d acquired, %d failed, %d writes; %v", m.Seed,
		mix.record.count(history.Acquired), mix.record.count(history.Failed), mix.record.count(history.Wrote), mix.done)
	if mix.record.count(history.Acquired) == 0 || len(mix.done) == 0 {
		t.Error("no lock was acquired, or no fault was caused: the run shows nothing")
	}
	return append(history.Violations(mix.record.excuseDeletions(r.TTL+time.Second)), mix.leftovers()...)
}

// leftovers returns a report of the locks that are not free after all workers
// have ended.
func (m *mixRun) leftovers() (found []string) {
	const margin = 5 * time.Second
	store, client := m.rig.open(m.t), m.rig.client(m.t)
	for _, name := range m.names {
		start := time.Now()
		leases := m.rig.acquireAlone(m, client, name)
		if took := time.Since(start); took > m.rig.TTL+margin {
			found = append(found, fmt.Sprintf("%q became free only %v after the last fault", name, took))
		}
		for _, lease := range leases {
			unlock(m.t, lease)
		}
		if listed(m.t, store, name) {
			found = append(found, fmt.Sprintf("%q is still listed after its unlock", name))
		}
	}
	return found
}

// disturbUntil disturbs the worker until end.
func (w *workerHandle) disturbUntil(t testing.TB, end time.Time) {
	ttl := w.mix.rig.TTL
	for {
		wait(t, time.Duration(w.random.Int64N(int64(w.mix.Pause))))
		d := ttl/10 + time.Duration(w.random.Int64N(int64(2*ttl)))
		h := w.mix.choose(w.random)
		if time.Now().Add(d).After(end) {
			return
		}
		h.do(t, w, d)
		w.mix.mu.Lock()
		w.mix.done[h.name]++
		w.mix.mu.Unlock()
	}
}

func (m *mixRun) choose(random *rand.Rand) disturbance {
	for {
		h := disturbances[random.IntN(len(disturbances))]
		if h.process && m.Store != nil || len(m.Disturbances) > 0 && !slices.Contains(m.Disturbances, h.name) {
			continue
		}
		return h
	}
}

// mentions reports whether the request is about any of the locks.
func (m *mixRun) mentions(request []byte) bool {
	return slices.ContainsFunc(m.names, func(name string) bool { return mentions(name)(request) })
}

// deleteLock deletes a lock in the store.
func (m *mixRun) deleteLock(random *rand.Rand) {
	d := history.Event{Kind: history.Deleted, Worker: -1, Name: m.Names[random.IntN(len(m.Names))], From: history.Now()}
	if err := m.rig.Delete(m.t.Context(), d.Name); err != nil {
		m.t.Errorf("delete %q: %v", d.Name, err)
	}
	d.To = history.Now()
	m.record.add(d)
}

func (w *workerHandle) holdTraffic(t testing.TB, d time.Duration, directions ...proxy.Direction) {
	t.Helper()
	w.proxy.Hold(directions...)
	wait(t, d)
	w.proxy.Deliver()
}

// start starts the worker as a process or as a goroutine.
func (w *workerHandle) start(t testing.TB) {
	t.Helper()
	o := order{Do: "work", Worker: w.id, Names: w.mix.names, TTL: w.mix.rig.TTL, Hold: w.mix.Hold}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mix.Store != nil {
		w.begin(o)
		return
	}
	p, err := w.rig.Agent(w.receive)
	if err != nil {
		t.Fatalf("start a worker: %v", err)
	}
	t.Cleanup(p.Kill)
	w.process, w.send, w.gone = p, func(o order) error { return p.SendJSON(o) }, p.Ended()
	if err := w.send(o); err != nil {
		t.Fatalf("start a worker: %v", err)
	}
}

// begin starts the worker as a goroutine.
func (w *workerHandle) begin(o order) {
	orders, in := io.Pipe()
	gone, store := make(chan struct{}), w.mix.Store(w.proxy.Addr())
	encoder := json.NewEncoder(in)
	w.send, w.gone = func(o order) error { return encoder.Encode(o) }, gone
	go func() {
		defer close(gone)
		_ = work(store, o, json.NewDecoder(orders), lineWriter(w.receive)) // returns after the stop order
		_ = store.Close()
		_ = orders.Close() // never fails
	}()
}

// lineWriter receives what an encoder writes: a line each time.
type lineWriter func(line string)

func (w lineWriter) Write(line []byte) (int, error) {
	w(string(line))
	return len(line), nil
}

// receive records an event of the worker, and answers its writes on behalf of the resource.
func (w *workerHandle) receive(line string) {
	var d history.Event
	if err := json.Unmarshal([]byte(line), &d); err != nil {
		return // the worker was killed while it wrote a line
	}
	if d.Kind == history.WriteAsked {
		d = w.mix.write(d)
		w.mu.Lock()
		send := w.send
		w.mu.Unlock()
		_ = send(order{Do: "go on"}) // the worker may have been killed
	}
	w.mix.record.add(d)
}

// write lets the resource decide.
func (m *mixRun) write(d history.Event) history.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	resource := m.resource[d.Name]
	if resource == nil {
		resource = new(fenced)
		m.resource[d.Name] = resource
	}
	d.Kind, d.OK, d.To = history.Wrote, resource.write(d.Token), history.Now()
	return d
}

// stop ends the faults of the worker's network, and waits until the worker has
// ended.
func (w *workerHandle) stop(t testing.TB) {
	t.Helper()
	w.proxy.Deliver()
	w.proxy.Delay(0)
	if err := w.send(order{Do: "stop"}); err != nil {
		t.Errorf("worker %d has died: %v", w.id, err)
	}
	select {
	case <-w.gone:
	case <-time.After(limit):
		t.Errorf("worker %d has not ended after %v", w.id, limit)
	}
	w.mix.record.died(w.id)
}
