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
)

// worker takes locks as it likes and tells what it did, until it is told to stop.
// It looks before every write, as programs should, and after that writes whatever
// has happened meanwhile, as programs do.
type worker struct {
	order   // what it is to do
	client  *dlock.Client
	out     *json.Encoder
	answers chan order      // of the resource; closed with the input
	ctx     context.Context // done when it has done enough
	holds   int
}

// work runs a worker over a store until it is told to stop.
func work(store driver.Store, o order, in *json.Decoder, out io.Writer) error {
	// Less than half of the TTL, so that a lost answer is asked for again.
	client := dlock.New(store, &dlock.Options{RequestTimeout: o.TTL / 3})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &worker{order: o, client: client, out: json.NewEncoder(out), answers: make(chan order), ctx: ctx}
	go w.listen(in, stop)
	err := w.run()
	_ = client.Close() // what cannot be given back now expires
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

// once takes a lock, uses it and gives it back.
func (w *worker) once(name string) error {
	d := deed{Kind: acquired, Worker: w.Worker, Name: name, From: monotonic()}
	lease, err := w.client.Lock(w.ctx, name, dlock.WithTTL(w.TTL), dlock.WithWait(2*w.TTL))
	d.To = monotonic()
	if err != nil {
		d.Kind = failed
		time.Sleep(w.TTL / 50)
		return w.out.Encode(d)
	}
	w.holds++
	d.Token, d.Hold = lease.Token(), fmt.Sprintf("%d.%d.%d", w.Worker, os.Getpid(), w.holds)
	if err := w.out.Encode(d); err != nil {
		return err
	}
	d.Kind = ended
	for until := time.Now().Add(rand.N(w.Hold)); w.believes(lease, &d); time.Sleep(w.TTL / 100) {
		if err := w.write(d); err != nil {
			return err
		}
		if time.Now().After(until) || w.ctx.Err() != nil {
			w.believes(lease, &d)
			break
		}
	}
	_ = lease.Unlock(context.Background()) // whatever it says, the worker believes no more
	d.To = monotonic()
	defer time.Sleep(rand.N(w.TTL / 10)) // so that others get a turn
	return w.out.Encode(d)
}

// believes looks at the lease. If it is alive the end comes after the time before
// the look; when it is not, it may have come any time since the last one.
func (w *worker) believes(lease *dlock.Lease, end *deed) bool {
	now := monotonic()
	if lease.Context().Err() != nil {
		return false
	}
	end.From = now
	return true
}

// write asks the resource and waits for its answer.
func (w *worker) write(d deed) error {
	d.Kind, d.From, d.To = asks, monotonic(), 0
	if err := w.out.Encode(d); err != nil {
		return err
	}
	if _, more := <-w.answers; !more {
		return io.EOF
	}
	return nil
}
