package redislock

import (
	"context"
	"fmt"
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

// eval runs one script, which replicas have to acknowledge if that is wanted.
func (s *Store) eval(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	return s.evalBy(ctx, s.replicas > 0, sc, keys, args)
}

// evalUnacknowledged runs one that they need not.
func (s *Store) evalUnacknowledged(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	return s.evalBy(ctx, false, sc, keys, args)
}

func (s *Store) evalBy(ctx context.Context, acknowledged bool, sc *script, keys []string, args []any) (any, error) {
	send := func(cmd command) error {
		if acknowledged {
			return s.send(ctx, keys[0], cmd)
		}
		return s.sender.do(ctx, cmd)
	}
	cmd := sc.bySHA(ctx, keys, args)
	if err := send(cmd); err != nil {
		return nil, err
	}
	if forgotten(cmd.Err()) {
		cmd = sc.bySource(ctx, keys, args)
		if err := send(cmd); err != nil {
			return nil, err
		}
	}
	return cmd.Val(), explain(cmd.Err())
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

// forgotten says that the server does not know the script, and so did nothing.
func forgotten(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// send runs commands in order on one connection to the server that has key. It
// fails if their outcome is unknown.
func (s *Store) send(ctx context.Context, key string, commands ...redis.Cmder) error {
	if s.replicas == 0 {
		return s.sender.do(ctx, commands...)
	}
	return s.sendReplicated(ctx, key, commands)
}

// sendReplicated sends commands and then waits, on the same connection, until
// enough replicas have them too.
func (s *Store) sendReplicated(ctx context.Context, key string, commands []redis.Cmder) error {
	sender, err := s.senderFor(ctx, key)
	if err != nil {
		return err
	}
	wait := command{redis.NewCmd(ctx, "wait", s.replicas, millis(s.timeout))}
	if err := sender.do(ctx, append(commands[:len(commands):len(commands)], wait)...); err != nil {
		return err
	}
	for _, cmd := range commands {
		if cmd.Err() != nil {
			return nil // the caller finds it
		}
	}
	if err := wait.Err(); err != nil {
		return explain(err)
	}
	if n, _ := wait.Val().(int64); n < int64(s.replicas) {
		return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, n, s.replicas, s.timeout)
	}
	return nil
}

// senderFor returns the sender to the server that has key. Only in a cluster is
// there more than one; WAIT, which has no key, would not find its way there.
func (s *Store) senderFor(ctx context.Context, key string) (*sender, error) {
	cluster, ok := s.client.(clusterClient)
	if !ok {
		return s.sender, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	}
	return s.nodes.sender(node)
}

// nodes are the senders to the servers of a cluster.
type nodes struct {
	mu      sync.Mutex
	senders map[string]*sender
	closed  bool
}

func (n *nodes) sender(node *redis.Client) (*sender, error) {
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
	s := newSender(node)
	n.senders[addr] = s
	return s, nil
}

func (n *nodes) close() {
	n.mu.Lock()
	n.closed = true
	senders := n.senders
	n.senders = nil
	n.mu.Unlock()
	for _, s := range senders {
		s.close()
	}
}
