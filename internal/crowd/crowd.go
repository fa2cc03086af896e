// Package crowd limits the requests of many callers of a process that each have a place of their own in
// a store's queue. A few requests for a name are under way at a time, in the order of the callers.
package crowd

import (
	"container/heap"
	"container/list"
	"sync"

	"github.com/dlock-go/dlock/internal/clock"
)

// MaxRequests is how many requests for one name are under way: enough to keep a server busy, and few
// enough that others, such as renewals, do not queue behind them.
const MaxRequests = 64

// Crowds are the callers by name. The zero value is ready to use.
type Crowds struct {
	mu     sync.Mutex
	byName map[string]*crowd
}

// crowd is the callers for one name. The mu of its Crowds guards it.
type crowd struct {
	callers  list.List // of *Caller, in order of arrival
	arrivals uint64
	line     line
	underWay int
	answered clock.Instant // when the store last answered a request; zero if it has not
}

// Caller is a caller in a crowd, from Join to Leave.
type Caller struct {
	crowds  *Crowds
	crowd   *crowd
	name    string
	number  uint64 // in order of arrival
	element *list.Element
}

// Request is a request that waits in the line of its crowd.
type Request struct {
	Admitted <-chan struct{} // closed when it may be sent
	admitted chan struct{}
	number   uint64 // of the caller
	left     bool
}

// line is a heap. The request of the caller that came first is its first.
type line []*Request

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].number < l[j].number }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *line) Push(x any)        { *l = append(*l, x.(*Request)) }
func (l *line) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return x
}

// Join adds a caller to the crowd of name.
func (c *Crowds) Join(name string) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = make(map[string]*crowd)
	}
	cr := c.byName[name]
	if cr == nil {
		cr = &crowd{}
		c.byName[name] = cr
	}
	cr.arrivals++
	caller := &Caller{crowds: c, crowd: cr, name: name, number: cr.arrivals}
	caller.element = cr.callers.PushBack(caller)
	return caller
}

// Leave removes a caller, which has no request under way.
func (c *Caller) Leave() {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	c.crowd.callers.Remove(c.element)
	if c.crowd.callers.Len() == 0 {
		delete(c.crowds.byName, c.name)
	}
}

// Begin returns nil if the caller may send a request at once. Otherwise the request waits in the line.
func (c *Caller) Begin() *Request {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	if c.crowd.underWay < MaxRequests {
		c.crowd.underWay++
		return nil
	}
	admitted := make(chan struct{})
	r := &Request{Admitted: admitted, admitted: admitted, number: c.number}
	heap.Push(&c.crowd.line, r)
	return r
}

// Cancel gives up a request that waits in the line, or was admitted at this very moment.
func (c *Caller) Cancel(r *Request) {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	r.left = true
	select {
	case <-r.admitted:
		c.crowd.endLocked()
	default:
	}
}

// End ends a request that was sent, and admits the next one. answered says whether the store has
// answered it.
func (c *Caller) End(answered bool, now clock.Instant) {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	if answered {
		c.crowd.answered = now
	}
	c.crowd.endLocked()
}

func (c *crowd) endLocked() {
	for len(c.line) > 0 {
		if r := heap.Pop(&c.line).(*Request); !r.left {
			close(r.admitted)
			return
		}
	}
	c.underWay--
}

// IsFirst reports whether no other caller of the crowd came before.
func (c *Caller) IsFirst() bool {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	return c.element.Prev() == nil
}

// LastAnswer returns when the store last answered a request of the crowd, or zero.
func (c *Caller) LastAnswer() clock.Instant {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	return c.crowd.answered
}
