package quorum

import (
	"context"
	"sync/atomic"
	"time"
)

// span is the time of one operation, in which all members are called once. One
// context with a limit serves all of these calls.
type span struct {
	lasting context.Context // has the values of the caller's, and no end
	limited context.Context // ends with the span
	cancel  context.CancelFunc
	began   time.Time
	length  time.Duration
	left    atomic.Int64 // calls that are not over yet
}

func (s *Store) newSpan(ctx context.Context) *span {
	sp := &span{lasting: context.WithoutCancel(ctx), began: time.Now(), length: s.timeout}
	sp.limited, sp.cancel = context.WithTimeout(sp.lasting, s.timeout)
	sp.left.Store(int64(len(s.members)))
	return sp
}

// context returns the context for a call that begins now. A call that had to wait for
// another one has the full time all the same.
func (sp *span) context() (context.Context, context.CancelFunc) {
	if time.Since(sp.began) > sp.length/8 {
		return context.WithTimeout(sp.lasting, sp.length)
	}
	return sp.limited, func() {}
}

// done is told of each call that is over, and frees the timer with the last.
func (sp *span) done() {
	if sp.left.Add(-1) == 0 {
		sp.cancel()
	}
}
