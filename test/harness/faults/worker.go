package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/history"
)

// worker acquires random locks and reports its events, until the test sends the
// order to stop. It checks its lease before every write, as programs should.
// After the check it writes regardless of what happened since, as programs do.
type worker struct {
	order   // its parameters
	client  *dlock.Client
	out     *json.Encoder
	answers chan order      // from the resource; closed at the end of the input
	ctx     context.Context // done after the stop order
	holds   int
}

// work runs a worker over a store until the stop order arrives.
func work(store driver.Store, o order, in *json.Decoder, out io.Writer) error {
	// A third of the TTL leaves time to repeat a request whose answer was lost.
	client := dlock.New(store, &dlock.Options{RequestTimeout: o.TTL / 3})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &worker{order: o, client: client, out: json.NewEncoder(out), answers: make(chan order), ctx: ctx}
	go w.listen(in, stop)
	err := w.run()
	_ = client.Close() // a lock that cannot be released now expires
	return err
}

func (w *worker) listen(in *json.Decoder, stop func()) {
	defer close(w.answers)
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		if o.Do == "stop" {
			stop()
		} else {
			w.answers <- o
		}
	}
}

func (w *worker) run() error {
	for w.ctx.Err() == nil {
		if err := w.once(w.Names[rand.IntN(len(w.Names))]); err != nil {
			return err
		}
	}
	return nil
}

// once acquires a lock, uses it and releases it.
func (w *worker) once(name string) error {
	mode, opts := modeFor(name)
	d := history.Event{Kind: history.Acquired, Worker: w.Worker, Name: name, Mode: mode, From: history.Now()}
	lease, err := w.client.Lock(w.ctx, name, append(opts, dlock.WithTTL(w.TTL), dlock.WithWait(2*w.TTL))...)
	d.To = history.Now()
	if err != nil {
		d.Kind = history.Failed
		time.Sleep(w.TTL / 50)
		return w.out.Encode(d)
	}
	w.holds++
	d.Token, d.Hold = lease.Token(), fmt.Sprintf("%d.%d.%d", w.Worker, os.Getpid(), w.holds)
	if err := w.out.Encode(d); err != nil {
		return err
	}
	d.Kind = history.Ended
	for until := time.Now().Add(rand.N(w.Hold)); w.stillHeld(lease, &d); time.Sleep(w.TTL / 100) {
		if mode == (driver.Mode{}) { // the order of other tokens protects no resource
			if err := w.write(d); err != nil {
				return err
			}
		}
		if time.Now().After(until) || w.ctx.Err() != nil {
			w.stillHeld(lease, &d)
			break
		}
	}
	_ = lease.Unlock(context.Background()) // after this call the worker does not trust the lease, whatever the outcome
	d.To = history.Now()
	defer time.Sleep(rand.N(w.TTL / 10)) // gives other workers a chance
	return w.out.Encode(d)
}

// stillHeld reports whether the lease is alive. If it is, its end is not before
// the time taken before this check. If it is not, it may have ended at any time
// since the last check.
func (w *worker) stillHeld(lease *dlock.Lease, end *history.Event) bool {
	now := history.Now()
	if lease.Context().Err() != nil {
		return false
	}
	end.From = now
	return true
}

// write asks the resource to accept a write, and waits for its answer.
func (w *worker) write(d history.Event) error {
	d.Kind, d.From, d.To = history.WriteAsked, history.Now(), 0
	if err := w.out.Encode(d); err != nil {
		return err
	}
	if _, more := <-w.answers; !more {
		return io.EOF
	}
	return nil
}
