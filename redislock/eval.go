package redislock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// clusterClient is what a client of Cluster can do beyond redis.UniversalClient.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
	ReloadState(ctx context.Context)
}

// eval runs one script, which replicas have to acknowledge if that is wanted: the
// error is ErrNotReplicated then, beside the reply.
func (s *Store) eval(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	sender, err := s.senderFor(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	return sender.eval(ctx, sc, keys, args)
}

// evalUnacknowledged runs one that they need not.
func (s *Store) evalUnacknowledged(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	return s.sender.eval(ctx, sc, keys, args)
}

func (s *sender) eval(ctx context.Context, sc *script, keys []string, args []any) (any, error) {
	cmd := sc.bySHA(ctx, keys, args)
	err := s.do(ctx, cmd)
	if returned(err) && forgotten(cmd.Err()) {
		cmd = sc.bySource(ctx, keys, args)
		err = s.do(ctx, cmd)
	}
	if !returned(err) {
		return nil, err
	}
	if failed := explain(cmd.Err()); failed != nil {
		return nil, failed
	}
	return cmd.Val(), err
}

func (sc *script) bySHA(ctx context.Context, keys []string, args []any) command {
	return sc.command(ctx, "evalsha", sc.sha, keys, args)
}

func (sc *script) bySource(ctx context.Context, keys []string, args []any) command {
	return sc.command(ctx, "eval", sc.source, keys, args)
}

func (*script) command(ctx context.Context, verb, script string, keys []string, args []any) command {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return command{redis.NewCmd(ctx, append(all, args...)...)}
}

// returned says of an error of do whether the commands have their results. If not,
// they are still under way, and not to be looked at.
func returned(err error) bool { return err == nil || errors.Is(err, ErrNotReplicated) }

// forgotten says that the server does not know the script, and so did nothing.
func forgotten(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// senderFor returns the sender for calls that replicas have to acknowledge, if that
// is wanted: to the server that has key. WAIT, which has no key, would not find
// its way through a cluster.
func (s *Store) senderFor(ctx context.Context, key string) (*sender, error) {
	cluster, ok := s.client.(clusterClient)
	switch {
	case s.replicas == 0:
		return s.sender, nil
	case !ok:
		return s.acked, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	}
	return s.nodes.sender(node, func(sender *sender) {
		sender.reload = cluster.ReloadState
		sender.replicas, sender.ackTimeout = s.replicas, s.timeout
	})
}

// nodes are the senders to the servers of a cluster.
type nodes struct {
	mu      sync.Mutex
	senders map[string]*sender
	retired []*sender // to clients that were replaced
	closed  bool
}

// sender returns the sender to a server, which configure prepares if it is new.
func (n *nodes) sender(node *redis.Client, configure func(*sender)) (*sender, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, driver.ErrClosed
	}
	addr := node.Options().Addr
	if s := n.senders[addr]; s != nil && s.client == redis.UniversalClient(node) {
		return s, nil
	}
	if n.senders == nil {
		n.senders = make(map[string]*sender)
	}
	if old := n.senders[addr]; old != nil {
		n.retired = append(n.retired, old)
	}
	s := newSender(node)
	configure(s)
	n.senders[addr] = s
	return s, nil
}

// close lets no more senders be made, and returns those there are.
func (n *nodes) close() []*sender {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	senders := slices.AppendSeq(n.retired, maps.Values(n.senders))
	n.senders, n.retired = nil, nil
	return senders
}
