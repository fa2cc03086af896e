package redislock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// clusterClient is what a client of Cluster can do beyond redis.UniversalClient.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
	ForEachShard(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error // replicas, too
	ReloadState(ctx context.Context)
}

// route takes calls to the server that has their key. In a cluster each server has
// a sender of its own: a pipeline for several of them would end when the slowest has
// answered, and one that hangs would cost the locks of the others.
type route struct {
	cluster    clusterClient // nil where there is none
	all        *sender       // to the only server, or by the cluster's client, which finds the way by itself
	replicas   int           // how many have to acknowledge each call
	ackTimeout time.Duration

	mu      sync.Mutex
	known   bool    // the client knows its cluster
	search  *search // under way
	senders map[string]*sender
	retired []*sender // to clients that were replaced
	closed  bool

	tasks sync.WaitGroup // searches, which may outlast their callers
}

// search is the client's search for its cluster.
type search struct {
	ended chan struct{}
	err   error
}

func newRoute(client redis.UniversalClient, replicas int, ackTimeout time.Duration) *route {
	r := &route{all: newSender(client), replicas: replicas, ackTimeout: ackTimeout}
	if r.cluster, _ = client.(clusterClient); r.cluster == nil {
		r.all.replicas, r.all.ackTimeout = replicas, ackTimeout
	}
	return r
}

// do runs one command, whose first key that is. Its own error is in it.
func (r *route) do(ctx context.Context, key string, cmd command) error {
	var last *sender
	for {
		sender, err := r.senderFor(ctx, key)
		if err != nil || sender == last { // a client that is closed and not replaced was closed by its owner
			return err
		}
		err = sender.do(ctx, cmd)
		switch {
		case r.redirected(err, cmd):
			return r.follow(ctx, cmd, r.nodes(ctx))
		case !r.unsent(err, cmd):
			return err
		}
		last = sender
	}
}

// unsent reports whether the client of a cluster's server was closed before the command
// could be sent. The cluster's client does that when the cluster has changed, and has
// another one then.
func (r *route) unsent(err error, cmd command) bool {
	return r.cluster != nil && returned(err) && errors.Is(cmd.Err(), redis.ErrClosed)
}

// senderFor returns the sender to the server that has key.
func (r *route) senderFor(ctx context.Context, key string) (*sender, error) {
	if r.cluster == nil {
		return r.all, nil
	}
	if err := r.find(ctx, key); err != nil {
		return nil, err
	}
	master, err := r.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, explain(err)
	}
	return r.to(master)
}

// find makes sure that the client knows its cluster. One that does not asks for it, and
// does not look at the context while it does: once for all who call is enough.
func (r *route) find(ctx context.Context, key string) error {
	r.mu.Lock()
	if r.known {
		r.mu.Unlock()
		return nil
	}
	found := r.search
	if found == nil {
		found = &search{ended: make(chan struct{})}
		if r.closed {
			r.mu.Unlock()
			return driver.ErrClosed
		}
		r.search = found
		r.tasks.Go(func() {
			_, err := r.cluster.MasterForKey(context.WithoutCancel(ctx), key)
			found.err = explain(err)
			r.mu.Lock()
			r.known, r.search = err == nil, nil
			r.mu.Unlock()
			close(found.ended)
		})
	}
	r.mu.Unlock()
	select {
	case <-found.ended:
		return found.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// to returns the sender to a server of a cluster.
func (r *route) to(node *redis.Client) (*sender, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, driver.ErrClosed
	}
	addr := node.Options().Addr
	if s := r.senders[addr]; s != nil && s.client == redis.UniversalClient(node) {
		return s, nil
	}
	if r.senders == nil {
		r.senders = make(map[string]*sender)
	}
	if old := r.senders[addr]; old != nil {
		r.retired = append(r.retired, old)
	}
	s := newSender(node)
	s.reload = r.cluster.ReloadState
	s.replicas, s.ackTimeout = r.replicas, r.ackTimeout
	r.senders[addr] = s
	return s, nil
}

// redirected says that a server of a cluster did nothing but name the one that has
// the key (MOVED), or gets it just now (ASK).
func (r *route) redirected(err error, cmd command) bool {
	return r.cluster != nil && returned(err) && isRedirect(cmd.Err())
}

// isRedirect reports whether an error is a server's that names another one.
func isRedirect(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "MOVED ") || strings.HasPrefix(err.Error(), "ASK "))
}

// maxRedirects is how often a command is sent on. A server that has given a slot away
// may name one that gives it away as well.
const maxRedirects = 3

// follow runs a command that was redirected. The cluster's client finds the way by
// itself, but WAIT, which has no key, does not.
func (r *route) follow(ctx context.Context, cmd command, nodes func() ([]*redis.Client, error)) error {
	if r.replicas == 0 {
		return r.all.do(ctx, cmd)
	}
	var err error
	for range maxRedirects {
		var sender *sender
		commands := []redis.Cmder{cmd}
		said := strings.Fields(cmd.Err().Error()) // ASK SLOT ADDRESS
		if said[0] == "ASK" {
			commands = []redis.Cmder{command{redis.NewCmd(ctx, "asking")}, cmd}
		}
		if sender, err = r.at(said[len(said)-1], nodes); sender == nil {
			return err
		}
		if err = sender.do(ctx, commands...); !r.redirected(err, cmd) {
			return err
		}
	}
	return err
}

// nodes returns what looks for the servers of a cluster, once for many commands: each
// time the client asks one of them. A server that was promoted just now may still be a
// replica in the eyes of the one that is asked.
func (r *route) nodes(ctx context.Context) func() ([]*redis.Client, error) {
	return sync.OnceValues(func() ([]*redis.Client, error) { return r.list(ctx, r.cluster.ForEachShard) })
}

// at returns the sender to the server at an address. It is nil if the client does not
// know it, because it has no slots yet.
func (r *route) at(addr string, nodes func() ([]*redis.Client, error)) (*sender, error) {
	list, err := nodes()
	if err != nil {
		return nil, err
	}
	for _, node := range list {
		if o := node.Options(); o.Addr == addr || o.NodeAddress == addr {
			return r.to(node)
		}
	}
	return nil, nil
}

// list returns the servers that each calls a function for. The client may have to ask
// for them, and does not look at the context while it does.
func (r *route) list(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error) ([]*redis.Client, error) {
	type answer struct {
		nodes []*redis.Client
		err   error
	}
	found := make(chan answer, 1)
	if !r.start(func() {
		var mu sync.Mutex
		var a answer
		a.err = explain(each(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			a.nodes = append(a.nodes, node)
			return nil
		}))
		found <- a
	}) {
		return nil, driver.ErrClosed
	}
	select {
	case a := <-found:
		return a.nodes, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start runs a task that join waits for, unless the route is closed.
func (r *route) start(task func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Go(task)
	return true
}

// join waits for the tasks, but not for long: nothing can interrupt a client that asks
// a server which does not answer.
func (r *route) join() {
	ended := make(chan struct{})
	go func() {
		r.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

// close lets no more senders be made, and returns those there are.
func (r *route) close() []*sender {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	senders := slices.AppendSeq(append(r.retired, r.all), maps.Values(r.senders))
	r.senders, r.retired = nil, nil
	return senders
}
