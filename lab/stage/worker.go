package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dlock-go/dlock/lab/subject"
)

// Role is the role of a process that executes the orders of an experiment.
const Role = "worker"

// job is the task of a process.
type job struct {
	Role    string          `json:"role"`
	Subject string          `json:"subject"`
	Config  subject.Config  `json:"config"`
	Task    json.RawMessage `json:"task,omitempty"` // of a program
}

// order is a line that the experiment sends to a process.
type order struct {
	ID      int           `json:"id"`
	Do      string        `json:"do"`              // lock, check, write, finish, unlock
	Limit   time.Duration `json:"limit,omitempty"` // of lock and unlock
	Names   []string      `json:"names,omitempty"` // of a lock of several names
	Read    balances      `json:"read,omitzero"`   // what the process has read
	Checked bool          `json:"checked,omitempty"`
}

// report is a line that a process sends: the answer to an order or, if ID is zero,
// that it passed a check of its lock.
type report struct {
	ID       int           `json:"id,omitempty"`
	At       time.Duration `json:"at"` // in the time of Now
	Err      string        `json:"err,omitempty"`
	Believes bool          `json:"believes,omitempty"`
	Token    uint64        `json:"token,omitempty"`
	Hold     int           `json:"hold,omitempty"`  // counts the grants of the process
	Text     string        `json:"text,omitempty"`  // what a program says when it is ready
	Visit    *Visit        `json:"visit,omitempty"` // of a program
}

// Visit is the time that a program was inside what the lock guards.
type Visit struct {
	From  time.Duration `json:"from"` // in the time of Now
	To    time.Duration `json:"to"`
	Token uint64        `json:"token,omitempty"`
	Text  string        `json:"text"`           // what happened
	Fell  time.Duration `json:"fell,omitempty"` // when it reduced the stock of the experiment
}

// checkEvery is how often a process asks itself whether it has the lock.
const checkEvery = 5 * time.Millisecond

// Work executes the orders of an experiment until its input ends. It is the main
// function of a process.
func Work(task []byte) error {
	w, err := newWorker(context.Background(), task)
	if err != nil {
		return err
	}
	w.Ready("")
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		go w.execute(o) // a lock may wait while other orders arrive
	}
}

// Worker is a process of an experiment, as it sees itself.
type Worker struct {
	Locker subject.Locker
	// Begun is closed when the experiment lets a program begin.
	Begun <-chan struct{}

	job job

	mu     sync.Mutex // guards the fields below
	out    *json.Encoder
	held   subject.Held
	holds  int
	ending func() // the process does not use the lock any more
}

func newWorker(ctx context.Context, task []byte) (*Worker, error) {
	w := &Worker{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal(task, &w.job); err != nil {
		return nil, err
	}
	var err error
	w.Locker, err = subject.Named(w.job.Subject).Open(ctx, w.job.Config)
	return w, err
}

// Program returns the main function of a process that does not wait for orders. The context of run ends
// when the experiment wants the process to end.
func Program[T any](run func(ctx context.Context, w *Worker, task T) error) func(task []byte) error {
	return func(text []byte) error {
		ctx, stop := context.WithCancel(context.Background())
		begun := make(chan struct{})
		go func() {
			defer stop()
			if in := json.NewDecoder(os.Stdin); in.Decode(&order{}) == nil {
				close(begun)
				_ = in.Decode(&order{}) // the end of the input
			}
		}()
		w, err := newWorker(ctx, text)
		if err != nil {
			return err
		}
		w.Begun = begun
		var task T
		if err := json.Unmarshal(w.job.Task, &task); err != nil {
			return err
		}
		err = run(ctx, w, task)
		if closer, ok := w.Locker.(io.Closer); ok {
			_ = closer.Close() // a lock that cannot be released expires
		}
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
}

// Ready tells the experiment that the process can begin.
func (w *Worker) Ready(text string) { w.report(report{ID: ready, Text: text}) }

// Visited reports a visit.
func (w *Worker) Visited(v Visit) { w.report(report{Visit: &v}) }

func (w *Worker) report(r report) {
	if r.At == 0 {
		r.At = Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r) // the experiment has ended
}

func (w *Worker) current() (held subject.Held, number int, ending func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, w.holds, w.ending
}

func (w *Worker) execute(o order) {
	ctx := context.Background()
	if o.Limit > 0 {
		limited, cancel := context.WithTimeout(ctx, o.Limit)
		defer cancel()
		ctx = limited
	}
	r := report{ID: o.ID}
	held, number, ending := w.current()
	switch {
	case o.Do == "lock":
		got, err := w.lock(ctx, o.Names)
		if r.At = Now(); err != nil {
			r.Err = err.Error()
			break
		}
		r.Token, r.Believes = got.Token(), true
		r.Hold = w.begin(got)
	case held == nil:
		r.Err = "has no lock"
	case o.Do == "check", o.Do == "write":
		// A process that was paused after its check writes without another one.
		r.At = Now()
		r.Believes = o.Checked || held.Believes()
		r.Token, r.Hold = held.Token(), number
	case o.Do == "finish":
		ending()
	case o.Do == "unlock":
		ending()
		if err := held.Unlock(ctx); err != nil {
			r.Err = err.Error()
		}
	}
	w.report(r)
}

func (w *Worker) lock(ctx context.Context, names []string) (subject.Held, error) {
	if len(names) == 0 {
		return w.Locker.Lock(ctx)
	}
	batch, ok := w.Locker.(subject.BatchLocker)
	if !ok {
		return nil, errors.New("cannot lock several names")
	}
	return batch.LockAll(ctx, names)
}

// begin makes held the lock of the process, and returns its number.
func (w *Worker) begin(held subject.Held) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
	ended := make(chan struct{})
	w.held, w.ending = held, sync.OnceFunc(func() { close(ended) })
	go w.check(held, w.holds, ended)
	return w.holds
}

// check reports when the process believes to have the lock.
func (w *Worker) check(held subject.Held, number int, ended chan struct{}) {
	for ; ; time.Sleep(checkEvery) {
		at := Now() // before the check, so that the belief at this time is certain
		believes := held.Believes()
		select {
		case <-ended:
			return
		default:
		}
		if believes {
			w.report(report{At: at, Hold: number, Believes: true})
		}
	}
}
