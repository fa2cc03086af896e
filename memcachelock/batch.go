package memcachelock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// crowd is how many calls have to be under way before further ones share round trips. With fewer,
	// each has a connection of its own, and waits for no other.
	crowd = 8
	// maxBatches is how many batches are under way at a time. One more than the first begins when
	// manyCalls wait.
	maxBatches = 4
	manyCalls  = 16
	// maxBatch is how many calls share a round trip. Their answers fit into the buffers of the
	// connection: until the last command is sent, nobody reads. So an attempt with a value of more
	// than maxBatchValue bytes does not take part.
	maxBatch      = 64
	maxBatchValue = 512
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
	batches int // under way
	closed  bool
	work    sync.WaitGroup
	ctx     context.Context // of the batches
	cancel  context.CancelFunc
}

// batched is an exchange and its caller.
type batched struct {
	exchange
	taken bool                // into a batch
	left  func(answered bool) // what an attempt calls at its end, if its caller has left; otherwise nil

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
	if b.batches == 0 || b.batches < maxBatches && len(b.queue) >= manyCalls {
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
	case !own.taken:
		b.queue = slices.DeleteFunc(b.queue, func(other *batched) bool { return other == own })
	case leave != nil:
		own.left = leave()
	}
	return true
}

// send sends batches until no call waits.
func (b *batcher) send() {
	for batch := b.take(); batch != nil; batch = b.take() {
		err := b.pool.with(b.ctx, nil, func(c *conn) error { return c.exchangeAll(batch) })
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
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	for _, one := range batch {
		one.taken = true
	}
	return batch
}

// end tells the callers of a batch their outcome. err is why some were not answered.
func (b *batcher) end(batch []*batched, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range batch {
		if !one.answered && one.err == nil {
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
		return err
	}
	for _, one := range batch {
		if !one.written {
			continue
		}
		err := one.read(c)
		if broken(err) && !errors.Is(err, errAlone) {
			return err
		}
		one.answered, one.err = true, err
	}
	return nil
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
