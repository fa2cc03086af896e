package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Mix is many faults at once: workers that contend for locks, each behind a
// proxy of its own, and each with somebody who does it harm at random. What they
// did is written down and compared with what is promised. It needs a rig with
// Addr, At and Delete.
type Mix struct {
	Seed    uint64 // decides the faults; what the scheduler does it does not
	Time    time.Duration
	Workers int
	Names   []string
	// Hold is the longest time that a worker holds a lock.
	Hold time.Duration
	// Pause is how long a worker is left alone at most. Default a TTL.
	Pause time.Duration
	// Harm are the faults to choose from, by name: see harms. All if it is empty.
	Harm []string
	// Store, if not nil, makes the workers be goroutines over stores that know
	// the server by this address; they cannot be killed or paused.
	Store func(addr string) driver.Store
}

// harm does something to a worker for a while.
type harm struct {
	name    string
	process bool // only a process can suffer it
	do      func(t testing.TB, w *laborer, d time.Duration)
}

var harms = []harm{
	{"kill", true, func(t testing.TB, w *laborer, _ time.Duration) { w.kill(); w.start(t) }},
	{"pause", true, func(t testing.TB, w *laborer, d time.Duration) {
		w.signal(syscall.SIGSTOP)
		wait(t, d)
		w.signal(syscall.SIGCONT)
	}},
	{"hold", false, func(t testing.TB, w *laborer, d time.Duration) { w.holds(t, d) }},
	{"hold requests", false, func(t testing.TB, w *laborer, d time.Duration) { w.holds(t, d, proxy.Requests) }},
	{"hold replies", false, func(t testing.TB, w *laborer, d time.Duration) { w.holds(t, d, proxy.Replies) }},
	{"lose reply", false, func(t testing.TB, w *laborer, _ time.Duration) { w.proxy.LoseReply(w.mix.mentions, false) }},
	{"reset", false, func(t testing.TB, w *laborer, _ time.Duration) { w.proxy.Reset() }},
	{"hang", false, func(t testing.TB, w *laborer, d time.Duration) {
		w.proxy.Hang(true)
		w.proxy.Reset()
		wait(t, d)
		w.proxy.Hang(false)
		w.proxy.Reset()
	}},
	{"delay", false, func(t testing.TB, w *laborer, d time.Duration) {
		w.proxy.Delay(d / 20)
		wait(t, d)
		w.proxy.Delay(0)
	}},
	{"delete", false, func(_ testing.TB, w *laborer, _ time.Duration) { w.mix.forget(w.random) }},
}

// mixing is a Mix that runs.
type mixing struct {
	Mix
	t       testing.TB
	rig     Rig
	history *history

	mu       sync.Mutex
	resource map[string]*fenced
	done     map[string]int // harm, by name
}

// laborer is a worker, what stands between it and the server, and who does it
// harm.
type laborer struct {
	mix    *mixing
	id     int
	rig    Rig
	proxy  *proxy.Proxy
	random *rand.Rand

	in   io.WriteCloser
	cmd  *exec.Cmd     // nil if it is a goroutine
	gone chan struct{} // closed when all it said has been heard
}

// Run returns what was done against the promises, nothing if all is well.
func (m Mix) Run(t testing.TB, r Rig) []string {
	t.Helper()
	if m.Pause == 0 {
		m.Pause = r.TTL
	}
	mix := &mixing{Mix: m, t: t, rig: r, history: newHistory(), resource: make(map[string]*fenced), done: make(map[string]int)}
	var all sync.WaitGroup
	end := time.Now().Add(m.Time)
	laborers := make([]*laborer, m.Workers)
	for i := range laborers {
		through, p := r.proxied(t)
		laborers[i] = &laborer{mix: mix, id: i, rig: through, proxy: p, random: rand.New(rand.NewPCG(m.Seed, uint64(i)))}
		laborers[i].start(t)
	}
	for _, w := range laborers {
		all.Go(func() { w.suffer(t, end) })
	}
	all.Wait()
	for _, w := range laborers {
		all.Go(func() { w.stop(t) })
	}
	all.Wait()
	t.Logf("seed %d: %d acquired, %d failed, %d writes; %v", m.Seed,
		mix.history.count(acquired), mix.history.count(failed), mix.history.count(wrote), mix.done)
	return append(violations(mix.history.excused(r.TTL+slack)), mix.leftovers()...)
}

// leftovers are locks that are not free when all is over.
func (m *mixing) leftovers() (found []string) {
	const patience = 5 * time.Second
	store, client := m.rig.open(m.t), m.rig.client(m.t)
	for _, name := range m.Names {
		start := time.Now()
		unlock(m.t, m.rig.lock(m.t, client, name))
		if took := time.Since(start); took > m.rig.TTL+patience {
			found = append(found, fmt.Sprintf("%q was free only %v after everything was well again", name, took))
		}
		if listed(m.t, store, name) {
			found = append(found, fmt.Sprintf("%q is held by nobody", name))
		}
	}
	return found
}

// suffer does harm to the worker until the end.
func (w *laborer) suffer(t testing.TB, end time.Time) {
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

func (m *mixing) choose(random *rand.Rand) harm {
	for {
		h := harms[random.IntN(len(harms))]
		if h.process && m.Store != nil || len(m.Harm) > 0 && !slices.Contains(m.Harm, h.name) {
			continue
		}
		return h
	}
}

// mentions finds requests about any of the locks.
func (m *mixing) mentions(request []byte) bool {
	return slices.ContainsFunc(m.Names, func(name string) bool { return mentions(name)(request) })
}

// forget makes the store forget a lock.
func (m *mixing) forget(random *rand.Rand) {
	d := deed{Kind: forgot, Worker: -1, Name: m.Names[random.IntN(len(m.Names))], From: monotonic()}
	if err := m.rig.Delete(m.t.Context(), d.Name); err != nil {
		m.t.Errorf("delete %q: %v", d.Name, err)
	}
	d.To = monotonic()
	m.history.add(d)
}

func (w *laborer) holds(t testing.TB, d time.Duration, directions ...proxy.Direction) {
	t.Helper()
	w.proxy.Hold(directions...)
	wait(t, d)
	w.proxy.Deliver()
}

// start starts the worker, as a process or as a goroutine.
func (w *laborer) start(t testing.TB) {
	t.Helper()
	o := order{Do: "work", Worker: w.id, Names: w.mix.Names, TTL: w.mix.rig.TTL, Hold: w.mix.Hold}
	var out io.Reader
	if w.mix.Store == nil {
		p := w.rig.puppet(t)
		w.in, w.cmd, out = p.in, p.cmd, p.out
		p.send(o)
	} else {
		orders, in := io.Pipe()
		said, says := io.Pipe()
		w.in, out = in, said
		store := w.mix.Store(w.proxy.Addr())
		go func() {
			_ = work(store, o, json.NewDecoder(orders), says) // ends when it is told to
			_ = store.Close()
			_ = says.Close() // never fails
		}()
	}
	w.gone = make(chan struct{})
	go w.listen(t, out)
}

// listen writes down what the worker says, and is the resource for it.
func (w *laborer) listen(t testing.TB, out io.Reader) {
	defer close(w.gone)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var d deed
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return // it was killed in the middle of a word
		}
		if d.Kind == asks {
			d = w.mix.write(d)
			if _, err := fmt.Fprintln(w.in, `{"do":"go on"}`); err != nil && w.cmd == nil {
				t.Errorf("answer worker %d: %v", w.id, err)
			}
		}
		w.mix.history.add(d)
	}
}

// write lets the resource decide.
func (m *mixing) write(d deed) deed {
	m.mu.Lock()
	defer m.mu.Unlock()
	resource := m.resource[d.Name]
	if resource == nil {
		resource = new(fenced)
		m.resource[d.Name] = resource
	}
	d.Kind, d.OK, d.To = wrote, resource.write(d.Token), monotonic()
	return d
}

func (w *laborer) signal(s syscall.Signal) { _ = w.cmd.Process.Signal(s) } // it lives until it is stopped

func (w *laborer) kill() {
	w.signal(syscall.SIGKILL)
	<-w.gone
	_ = w.cmd.Wait() // that it was killed is no news
	w.mix.history.died(w.id)
}

// stop lets the worker come to its end.
func (w *laborer) stop(t testing.TB) {
	t.Helper()
	w.proxy.Deliver()
	w.proxy.Delay(0)
	if _, err := fmt.Fprintln(w.in, `{"do":"stop"}`); err != nil {
		t.Errorf("worker %d has died: %v", w.id, err)
	}
	select {
	case <-w.gone:
	case <-time.After(limit):
		t.Errorf("worker %d has not ended after %v", w.id, limit)
	}
	w.in.Close()
	w.mix.history.died(w.id)
}
