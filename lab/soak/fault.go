package soak

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/test/harness/history"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// fault is a fault that was or is being caused.
type fault struct {
	name     string
	process  int   // -1 for a server, which concerns all
	from, to int64 // to is zero while it lasts
}

// disturbance causes a fault for a while. It ends the fault before it returns, also if ctx
// ends first.
type disturbance struct {
	name   string
	client func(ctx context.Context, p *process, d time.Duration) error
	server func(ctx context.Context, s *place, random *rand.Rand, d time.Duration) error
}

// disturbances are all faults. Those of the network concern one process.
var disturbances = []disturbance{
	{name: "kill", client: func(_ context.Context, p *process, _ time.Duration) error {
		p.kill()
		return p.start()
	}},
	{name: "pause", client: func(ctx context.Context, p *process, d time.Duration) error {
		err := p.child.Pause()
		wait(ctx, d)
		return errors.Join(err, p.child.Resume())
	}},
	{name: "cut", client: func(ctx context.Context, p *process, d time.Duration) error { return p.hold(ctx, d) }},
	{name: "cut requests", client: func(ctx context.Context, p *process, d time.Duration) error { return p.hold(ctx, d, proxy.Requests) }},
	{name: "cut replies", client: func(ctx context.Context, p *process, d time.Duration) error { return p.hold(ctx, d, proxy.Replies) }},
	{name: "delay", client: func(ctx context.Context, p *process, d time.Duration) error {
		p.each(func(x *proxy.Proxy) { x.Delay(d / 20) })
		wait(ctx, d)
		p.each(func(x *proxy.Proxy) { x.Delay(0) })
		return nil
	}},
	// Requests that were sent are overtaken by those on new connections.
	{name: "reorder", client: func(ctx context.Context, p *process, d time.Duration) error {
		var deliver []func(time.Duration)
		p.each(func(x *proxy.Proxy) { deliver = append(deliver, x.Lag()) })
		wait(ctx, d)
		for _, f := range deliver {
			f(time.Second)
		}
		return nil
	}},
	{name: "lose reply", client: func(_ context.Context, p *process, _ time.Duration) error {
		p.each(func(x *proxy.Proxy) {
			x.LoseReply(func(request []byte) bool { return bytes.Contains(request, []byte(prefix)) }, false)
		})
		return nil
	}},
	{name: "reset", client: func(_ context.Context, p *process, _ time.Duration) error {
		p.each((*proxy.Proxy).Reset)
		return nil
	}},
	{name: "hang", client: func(ctx context.Context, p *process, d time.Duration) error {
		hang := func(hangs bool) {
			p.each(func(x *proxy.Proxy) {
				x.Hang(hangs)
				x.Reset()
			})
		}
		hang(true)
		wait(ctx, d)
		hang(false)
		return nil
	}},
	{name: "server pause", server: func(ctx context.Context, s *place, random *rand.Rand, d time.Duration) error {
		server := s.members[random.IntN(len(s.members))]
		err := server.Pause()
		wait(ctx, d)
		return errors.Join(err, server.Resume())
	}},
	// The server, or one of several, is killed and comes back with its data.
	{name: "restart", server: func(ctx context.Context, s *place, random *rand.Rand, d time.Duration) error {
		server := s.members[random.IntN(len(s.members))]
		err := server.Kill()
		wait(ctx, d/4)
		return errors.Join(err, server.Restart())
	}},
	// The leader is killed, another member takes over, and the old leader comes back.
	{name: "failover", server: func(ctx context.Context, s *place, _ *rand.Rand, d time.Duration) error {
		leader, err := s.leader(ctx)
		if ctx.Err() != nil {
			return nil // the soak has ended while an election was under way
		} else if err != nil {
			return err
		}
		err = leader.Kill()
		wait(ctx, d)
		return errors.Join(err, leader.Restart())
	}},
	// The server's clock steps back, never forward: no lock expires early.
	{name: "clock", server: func(_ context.Context, s *place, random *rand.Rand, _ time.Duration) error {
		s.clock -= time.Duration(random.Int64N(int64(time.Second)))
		return s.members[0].SetClock(s.clock)
	}},
}

// hold stops the traffic of a process for a while.
func (p *process) hold(ctx context.Context, d time.Duration, directions ...proxy.Direction) error {
	p.each(func(x *proxy.Proxy) { x.Hold(directions...) })
	wait(ctx, d)
	p.each((*proxy.Proxy).Deliver)
	return nil
}

// wait blocks for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

const (
	// processPause is the longest time between two faults if there is one process.
	processPause = 500 * time.Millisecond
	// serverPause is the longest time between two faults of servers: every process suffers.
	serverPause = 10 * time.Second
)

// disturb causes one fault after the other until ctx ends: those of a process or, if it is
// nil, those of the servers.
func (s *soak) disturb(ctx context.Context, p *process, random *rand.Rand) error {
	var choice []disturbance
	pause, process := serverPause, -1
	for _, d := range disturbances {
		// The first process is measured at the end, so it is not killed.
		spared := p != nil && p.job.Process == 0 && d.name == "kill" && s.store.processes > 1
		if slices.Contains(s.faults, d.name) && (d.client != nil) == (p != nil) && !spared {
			choice = append(choice, d)
		}
	}
	if p != nil {
		pause, process = cmp.Or(s.Every, time.Duration(s.store.processes)*processPause), p.job.Process
	}
	for len(choice) > 0 {
		wait(ctx, time.Duration(random.Int64N(int64(pause))))
		d := s.store.ttl/10 + time.Duration(random.Int64N(int64(2*s.store.ttl)))
		do := choice[random.IntN(len(choice))]
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the soak is no failure
		}
		done := s.record.causes(do.name, process)
		var err error
		if p != nil {
			err = do.client(ctx, p, d)
		} else {
			err = do.server(ctx, s.place, random, d)
		}
		if done(); err != nil {
			return err
		}
	}
	return nil
}

// causes records a fault until done is called.
func (r *record) causes(name string, process int) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fault{name: name, process: process, from: history.Now()}
	r.faults = append(r.faults, f)
	r.counts.Faults[name]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		f.to = history.Now()
	}
}

// recovery is how long a process may need after a fault, to connect again for example.
const recovery = 500 * time.Millisecond

// disturbed reports whether a fault concerned the process between two times.
func (r *record) disturbed(process int, from, to int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.faults, func(f *fault) bool {
		return (f.process < 0 || f.process == process) && f.from <= to && (f.to == 0 || f.to+int64(recovery) >= from)
	})
}

// notes returns the faults around some events, for a picture.
func (r *record) notes(events []history.Event) (notes []history.Note) {
	from, to := events[0].From, events[0].To
	for _, e := range events {
		from, to = min(from, e.From), max(to, e.To)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		end := f.to
		if end == 0 {
			end = to
		}
		if f.from <= to && end >= from {
			notes = append(notes, history.Note{From: max(from, f.from), To: min(to, end), Text: f.describe()})
		}
	}
	return notes
}

func (f *fault) describe() string {
	if f.process < 0 {
		return f.name
	}
	return fmt.Sprintf("%s of process %d", f.name, f.process)
}
