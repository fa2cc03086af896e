package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/lab/subject"
)

// WorkerVariable is the environment variable that makes the program a process of an
// experiment. Its value is a [job].
const WorkerVariable = "DLOCK_LAB_WORKER"

// job is the way to lock of a process.
type job struct {
	Subject string         `json:"subject"`
	Config  subject.Config `json:"config"`
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
	Hold     int           `json:"hold,omitempty"` // counts the grants of the process
}

// checkEvery is how often a process asks itself whether it has the lock.
const checkEvery = 5 * time.Millisecond

// Work executes the orders of an experiment until its input ends. It is the main
// function of a process.
func Work(description string) error {
	var j job
	if err := json.Unmarshal([]byte(description), &j); err != nil {
		return err
	}
	s, err := subject.Named(j.Subject)
	if err != nil {
		return err
	}
	locker, err := s.Open(context.Background(), j.Config)
	if err != nil {
		return err
	}
	w := &worker{locker: locker, out: json.NewEncoder(os.Stdout)}
	w.report(report{ID: -1}) // ready
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

type worker struct {
	locker subject.Locker

	mu     sync.Mutex // guards the fields below
	out    *json.Encoder
	held   subject.Held
	holds  int
	ending func() // the process does not use the lock any more
}

func (w *worker) report(r report) {
	if r.At == 0 {
		r.At = Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r) // the experiment has ended
}

func (w *worker) current() (held subject.Held, number int, ending func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, w.holds, w.ending
}

func (w *worker) execute(o order) {
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

func (w *worker) lock(ctx context.Context, names []string) (subject.Held, error) {
	if len(names) == 0 {
		return w.locker.Lock(ctx)
	}
	batch, ok := w.locker.(subject.BatchLocker)
	if !ok {
		return nil, errors.New("cannot lock several names")
	}
	return batch.LockAll(ctx, names)
}

// begin makes held the lock of the process, and returns its number.
func (w *worker) begin(held subject.Held) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
	ended := make(chan struct{})
	w.held, w.ending = held, sync.OnceFunc(func() { close(ended) })
	go w.check(held, w.holds, ended)
	return w.holds
}

// check reports when the process believes to have the lock.
func (w *worker) check(held subject.Held, number int, ended chan struct{}) {
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
