package redislock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// clusterClient is what a *redis.ClusterClient can do beyond redis.UniversalClient.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
	ForEachMaster(ctx context.Context, fn serverFunc) error
	ForEachShard(ctx context.Context, fn serverFunc) error // masters and replicas
}

type serverFunc = func(ctx context.Context, server *redis.Client) error

// route sends each call to the server that has its key. In a cluster each server has a sender of
// its own: a pipeline for several servers would end with the slowest, and a server that hangs
// would delay the locks of the others.
type route struct {
	cluster    clusterClient // nil if the client is not one
	clustered  *atomic.Bool  // Store.clustered
	viaClient  *sender       // through the program's client, which routes by itself in a cluster
	replicas   int           // how many have to acknowledge each call
	ackTimeout time.Duration

	mu      sync.Mutex
	known   bool         // the client knows its cluster
	search  func() error // under way; nil if there is none
	senders map[string]*sender
	checked time.Time // when senders were last compared with the servers of the cluster

	tasks *tasks // searches, pipelines and subscriptions
}

func newRoute(client redis.UniversalClient, clustered *atomic.Bool, replicas int, ackTimeout time.Duration) *route {
	r := &route{clustered: clustered, replicas: replicas, ackTimeout: ackTimeout,
		senders: make(map[string]*sender), checked: time.Now(), tasks: newTasks()}
	r.viaClient = newSender(r, client)
	if r.cluster, _ = client.(clusterClient); r.cluster != nil {
		r.viaClient.replicas = 0 // WAIT has no key, and would reach any server
	}
	return r
}

// do runs one command, whose first key is given. The command holds its own error.
func (r *route) do(ctx context.Context, key string, cmd noRetryCmd) error {
	var last *sender
	for {
		sender, err := r.senderFor(ctx, key)
		if err != nil || sender == last { // not replaced: the program has closed it, and cmd has the error
			return err
		}
		err = sender.do(ctx, cmd)
		switch {
		case r.redirected(err, cmd):
			return r.follow(ctx, cmd, r.allServers(ctx))
		case !r.clientReplaced(err, cmd):
			return err
		}
		last = sender
	}
}

// clientReplaced reports whether the client of a cluster's server was closed or replaced before it
// sent the command. The cluster's client does so when the cluster has changed.
func (r *route) clientReplaced(err error, cmd noRetryCmd) bool {
	return errors.Is(err, errReplaced) || r.cluster != nil && haveResults(err) && errors.Is(cmd.Err(), redis.ErrClosed)
}

// senderFor returns the sender to the server that has key.
func (r *route) senderFor(ctx context.Context, key string) (*sender, error) {
	if r.cluster == nil {
		return r.viaClient, nil
	}
	if err := r.loadCluster(ctx, key); err != nil {
		return nil, err
	}
	master, err := r.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, explain(err)
	}
	return r.senderTo(master)
}

// loadCluster makes sure that the client knows its cluster. The client's search ignores the
// context, so loadCluster runs it in the background, once for all callers.
func (r *route) loadCluster(ctx context.Context, key string) error {
	r.mu.Lock()
	if r.search == nil && !r.known {
		r.search = sync.OnceValue(func() error {
			_, err := r.cluster.MasterForKey(context.WithoutCancel(ctx), key)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.known, r.search = err == nil, nil
			return explain(err)
		})
	}
	known, search := r.known, r.search
	r.mu.Unlock()
	if known {
		return nil
	}
	return r.tasks.call(ctx, search)
}

// reload makes the client of a cluster search for the masters, in the background.
func (r *route) reload(ctx context.Context) {
	if r.cluster != nil {
		r.cluster.ReloadState(ctx)
	}
}

// errReplaced: the cluster's client has replaced the client of a server.
var errReplaced = fmt.Errorf("%w: the cluster client has replaced the client of this server", driver.ErrUnreachable)

// senderTo returns the sender to one server of a cluster. It replaces a sender of another client.
func (r *route) senderTo(server *redis.Client) (*sender, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	if time.Since(r.checked) > checkInterval {
		r.checked = time.Now()
		r.tasks.start(r.forgetGone)
	}
	addr := server.Options().Addr
	old := r.senders[addr]
	if old != nil && old.client == redis.UniversalClient(server) {
		return old, nil
	}
	if old != nil {
		old.close(errReplaced)
	}
	s := newSender(r, server)
	s.addr, r.senders[addr] = addr, s
	return s, nil
}

// checkInterval is how often senders are compared with the servers of the cluster.
const checkInterval = time.Minute

// forgetGone ends the senders to servers that have left the cluster.
func (r *route) forgetGone() {
	servers, err := r.list(r.tasks.ctx, r.cluster.ForEachShard)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, s := range r.senders {
		if !slices.ContainsFunc(servers, func(server *redis.Client) bool { return server.Options().Addr == addr }) {
			s.close(errReplaced)
			delete(r.senders, addr)
		}
	}
}

// list returns the servers that forEach visits. It obeys ctx, although forEach does not.
func (r *route) list(ctx context.Context, forEach func(context.Context, serverFunc) error) ([]*redis.Client, error) {
	var mu sync.Mutex
	var found []*redis.Client
	err := r.tasks.call(ctx, func() error {
		return explain(forEach(ctx, func(_ context.Context, server *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, server)
			return nil
		}))
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// close lets no further call in, and waits briefly for the calls and searches under way.
func (r *route) close() {
	r.tasks.close()
	r.mu.Lock()
	senders := slices.AppendSeq([]*sender{r.viaClient}, maps.Values(r.senders))
	r.mu.Unlock()
	for _, s := range senders {
		s.close(driver.ErrClosed)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.tasks.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

// closeTimeout limits the wait of close. Nothing can interrupt a client that talks to a server
// which does not answer: the call ends by the client's own timeout, or with the client.
const closeTimeout = 250 * time.Millisecond

// maxRedirects is how often a command follows a redirection. A server that has given a hash slot
// away may name a server that has given it away as well.
const maxRedirects = 3

// errWrongServer: the client is for one server of a cluster, and the lock is on another one.
var errWrongServer = errors.New("the server is one of several of a cluster, and the lock is on another one: " +
	"the client has to be one of Cluster (redis.NewClusterClient, redis+cluster:// in a URL)")

// redirected reports whether a server of a cluster named another server.
func (r *route) redirected(err error, cmd noRetryCmd) bool {
	return r.cluster != nil && haveResults(err) && isRedirect(cmd.Err())
}

// follow runs a command that was redirected. The cluster's client follows redirections by itself,
// but it does not send WAIT, which has no key, to the same server.
func (r *route) follow(ctx context.Context, cmd noRetryCmd, servers func() ([]*redis.Client, error)) error {
	if r.replicas == 0 {
		return r.viaClient.do(ctx, cmd)
	}
	for range maxRedirects {
		addr, ask := redis.IsAskError(cmd.Err())
		if !ask {
			addr, _ = redis.IsMovedError(cmd.Err())
		}
		list, err := servers()
		i := slices.IndexFunc(list, func(server *redis.Client) bool {
			return slices.Contains([]string{server.Options().Addr, server.Options().NodeAddress}, addr)
		})
		if err != nil || i < 0 { // the client does not know a server that has no hash slots yet
			return err
		}
		sender, err := r.senderTo(list[i])
		if err != nil {
			return err
		}
		commands := []redis.Cmder{cmd}
		if ask {
			commands = []redis.Cmder{noRetryCmd{redis.NewCmd(ctx, "asking")}, cmd}
		}
		if err = sender.do(ctx, commands...); !r.redirected(err, cmd) {
			return err
		}
	}
	return nil // the command's error is the last redirection
}

// allServers returns a function that finds the servers of a cluster, once for many commands. It
// includes replicas: a server that was just promoted may still be a replica in the client's view.
func (r *route) allServers(ctx context.Context) func() ([]*redis.Client, error) {
	return sync.OnceValues(func() ([]*redis.Client, error) { return r.list(ctx, r.cluster.ForEachShard) })
}

// tasks are goroutines that may outlast the call that started them. Close waits for them.
type tasks struct {
	ctx    context.Context // ends when the tasks are closed
	cancel context.CancelFunc

	mu      sync.Mutex // no task starts after close
	running sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// start runs f in the background. It reports false if the tasks are closed.
func (t *tasks) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.running.Go(f)
	return true
}

// call runs f as a task and returns its error. If ctx ends first or the tasks are closed, f
// goes on: the caller must not read what f writes.
func (t *tasks) call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !t.start(func() { done <- f() }) {
		return driver.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return noAnswer(&abandonedError{cause: context.Cause(ctx), notSent: true})
	case <-t.ctx.Done():
		return driver.ErrClosed
	}
}

// close lets no further task start. It does not wait.
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel()
}
