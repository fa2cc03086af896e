package memcachelock

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// crowd is how many calls have to be under way before further ones share round trips. With fewer,
	// each has a connection of its own, and waits for no other.
	crowd = 8
	// maxBatches is how many batches are under way at a time. One more than the first begins when
	// manyCalls wait, or when a call comes and the last batch began slowBatch ago.
	maxBatches = 4
	manyCalls  = 16
	slowBatch  = 10 * time.Millisecond
	// maxBatch is how many calls share a round trip, and maxBatchValue how many bytes the value of an
	// attempt among them has. Nobody reads answers until the last command is written, so the commands
	// must fit into the buffers of the connection.
	maxBatch      = 32
	maxBatchValue = 256
)

// exchange is a call in the form that it has if nothing special happens: one round trip.
type exchange interface {
	// write writes the commands. It reports false if the call needs a connection of its own.
	write(c *conn) bool
	// read reads the answers. It returns errAlone if the call goes on after them.
	read(c *conn) error
}

// errAlone: the call needs a connection of its own.
var errAlone = errors.New("the call needs a connection of its own")

// batcher lets the calls of a busy process share round trips: it sends their commands together. Most
// of what a call costs is sending and receiving.
type batcher struct {
	pool    *pool
	callers atomic.Int64 // of do

	mu      sync.Mutex
	queue   []*batched
	batches int       // under way
	began   time.Time // when the last one did
	closed  bool
	work    sync.WaitGroup
	ctx     context.Context // of the batches
	cancel  context.CancelFunc
}

// batched is an exchange and its caller.
type batched struct {
	exchange
	sending bool                // its batch is being written
	gone    bool                // its caller left before that
	left    func(answered bool) // what an attempt calls at its end, if its caller left after that; otherwise nil

	// The outcome.
	done     chan struct{} // closed when it is known
	written  bool
	answered bool
	err      error
}

func newBatcher(p *pool) *batcher {
	b := &batcher{pool: p}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// crowded reports whether so many calls are under way that a further one is to share a round trip.
func (b *batcher) crowded() bool { return int(b.callers.Load())+len(b.pool.busy) >= crowd }

// do makes an exchange together with those of other callers. See pool.with for leave.
func (b *batcher) do(ctx context.Context, leave leave, e exchange) error {
	b.callers.Add(1)
	defer b.callers.Add(-1)
	own := &batched{exchange: e, done: make(chan struct{})}
	if !b.enqueue(own) {
		return errAlone
	}
	select {
	case <-own.done:
	case <-ctx.Done():
		if b.leave(own, leave) {
			return unreachable(context.Cause(ctx))
		}
	}
	if leave != nil && own.written && !own.answered {
		leave()(false)
	}
	return own.err
}

// enqueue reports false after close.
func (b *batcher) enqueue(own *batched) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue = append(b.queue, own)
	if b.batches == 0 || b.batches < maxBatches && (len(b.queue) >= manyCalls || time.Since(b.began) > slowBatch) {
		b.batches++
		b.work.Go(b.send)
	}
	return true
}

// leave records that the caller leaves before the outcome is known. It reports false if the outcome
// is known.
func (b *batcher) leave(own *batched, leave leave) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-own.done:
		return false
	default:
	}
	switch {
	case !own.sending: // nor will it be
		own.gone = true
		b.queue = slices.DeleteFunc(b.queue, func(other *batched) bool { return other == own })
	case leave != nil:
		own.left = leave()
	}
	return true
}

// send sends batches until no call waits.
func (b *batcher) send() {
	for batch := b.take(); batch != nil; batch = b.take() {
		err := b.pool.with(b.ctx, nil, func(c *conn) error {
			if b.ctx.Err() != nil {
				return context.Cause(b.ctx)
			}
			c.limitSilence(b.pool.maxSilence())
			return c.exchangeAll(b.stay(batch))
		})
		b.end(batch, err)
	}
}

// take returns the next batch, or nil if no call waits.
func (b *batcher) take() []*batched {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), maxBatch)
	if n == 0 {
		b.batches--
		return nil
	}
	b.began = time.Now()
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	return batch
}

// stay returns the exchanges whose callers have not left. From now on a caller that leaves does not
// know the outcome.
func (b *batcher) stay(batch []*batched) (staying []*batched) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range batch {
		if !one.gone {
			one.sending = true
			staying = append(staying, one)
		}
	}
	return staying
}

// end tells the callers of a batch their outcome. err is why some were not answered.
func (b *batcher) end(batch []*batched, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range batch {
		switch {
		case one.answered || one.err != nil:
		case !one.written && errors.Is(err, driver.ErrMisconfigured): // of a new connection; there may be others
			one.err = errAlone
		default:
			one.err = err
		}
		if one.left != nil {
			one.left(one.answered || !one.written)
		}
		close(one.done)
	}
}

// exchangeAll sends the commands of a batch together, and reads the answers. An exchange that needs
// a connection of its own, or has an answer, has its outcome afterwards.
func (c *conn) exchangeAll(batch []*batched) error {
	for _, one := range batch {
		if one.written = one.write(c); !one.written {
			one.err = errAlone
		}
	}
	if err := c.out.Flush(); err != nil {
		if c.wasSilent = errors.Is(err, os.ErrDeadlineExceeded); c.wasSilent {
			err = errSilent
		}
		return err
	}
	for _, one := range batch {
		if !one.written {
			continue
		}
		err := one.read(c)
		switch {
		case errors.Is(err, errAlone) || !broken(err):
			one.answered, one.err = true, err
		case errors.Is(err, driver.ErrMisconfigured): // what is wrong with this item is not so with the others
			one.err = err
			return errSilent
		default:
			return err
		}
	}
	return nil
}

// limitSilence limits how long the server may neither send nor receive.
func (c *conn) limitSilence(limit time.Duration) {
	c.maxSilence = limit
	if until := c.began.Add(limit); until.Before(c.writeDeadline) {
		c.writeDeadline = until
		_ = c.net.SetWriteDeadline(until)
	}
}

// close lets no more calls take part. It waits for up to limit for the answers to those that do.
func (b *batcher) close(limit time.Duration) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	timer := time.AfterFunc(limit, b.cancel)
	b.work.Wait()
	timer.Stop()
	b.cancel()
}
