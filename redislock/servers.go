package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/redis/go-redis/v9"
)

// learnClusterMode asks the server once whether it is in cluster mode, in one round trip. It is not
// enough that the client is not a *redis.ClusterClient: a *redis.Client may be for a server that
// has all hash slots, and a type of the caller's may contain a *redis.ClusterClient.
func (s *Store) learnClusterMode(ctx context.Context) error {
	if !s.clusterKnown.Load() {
		if err := s.askClusterMode(ctx); err != nil {
			return err
		}
		s.clusterKnown.Store(true)
	}
	if s.replicas > 0 && s.hidesCluster() {
		return fmt.Errorf("%w: Replicas needs the *redis.ClusterClient itself: through a %T, WAIT may reach another server than the lock",
			driver.ErrUnsupported, s.client)
	}
	return nil
}

// askClusterMode asks the server whether it is in cluster mode. HELLO without arguments changes
// nothing and is allowed to every user. But some servers do not know HELLO, and some refuse keys of
// several hash slots without calling that cluster mode. So a script with such keys follows.
func (s *Store) askClusterMode(ctx context.Context) error {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	both := noRetryCmd{redis.NewCmd(ctx, "eval", "return 1", 2, "dlock:slot:{a}", "dlock:slot:{b}")}
	if err := s.route.viaClient.do(ctx, noRetry{hello}, both); err != nil {
		return noAnswer(err)
	}
	if hello.Err() == nil && hello.Val()["mode"] == "cluster" || isCrossSlot(both.Err()) {
		s.clustered.Store(true)
		return nil
	}
	for _, err := range []error{hello.Err(), both.Err()} {
		explained := explain(err)
		if unanswered(err) || errors.Is(explained, driver.ErrUnreachable) || errors.Is(explained, driver.ErrMisconfigured) ||
			begins(err, "NOAUTH") {
			return explained
		}
	}
	return nil
}

// foundCluster reports whether a call learned that the server is in cluster mode, which the store
// did not know when the call began. The call is worth another attempt.
func (s *Store) foundCluster(knew bool, err error) bool {
	if knew || !isCrossSlot(err) {
		return false
	}
	s.clustered.Store(true)
	return true
}

// hidesCluster reports whether the client may be a *redis.ClusterClient inside another type.
func (s *Store) hidesCluster() bool {
	_, oneServer := s.client.(*redis.Client)
	return s.clustered.Load() && s.route.cluster == nil && !oneServer
}

// isRing reports whether a client is a *redis.Ring, or a type that embeds one.
func isRing(client reflect.Value) bool {
	for client.Kind() == reflect.Pointer || client.Kind() == reflect.Interface {
		if client.Type() == reflect.TypeFor[*redis.Ring]() {
			return true
		}
		client = client.Elem()
	}
	if client.Kind() == reflect.Struct {
		for f, value := range client.Fields() {
			if f.Anonymous && f.Type.Implements(reflect.TypeFor[redis.UniversalClient]()) && isRing(value) {
				return true
			}
		}
	}
	return false
}

// servers returns the senders to all servers that have keys. It fails for a client that hides a
// cluster: such a client chooses the server of each command by itself.
func (s *Store) servers(ctx context.Context) ([]*sender, error) {
	switch {
	case s.hidesCluster():
		return nil, fmt.Errorf("%w: asking each master needs the *redis.ClusterClient itself, not a %T",
			driver.ErrUnsupported, s.client)
	case s.route.cluster == nil:
		return []*sender{s.route.viaClient}, nil
	}
	masters, err := s.route.list(ctx, s.route.cluster.ForEachMaster)
	if err != nil {
		return nil, err
	}
	list := make([]*sender, len(masters))
	for i, master := range masters {
		if list[i], err = s.route.senderTo(master); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b *sender) int { return cmp.Compare(a.addr, b.addr) })
	return list, nil
}

// countMasters asks a server of a cluster how many masters have hash slots.
func countMasters(ctx context.Context, server *sender) (int, error) {
	cmd := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
	if err := query(ctx, server, cmd); err != nil {
		return 0, err
	}
	masters := make(map[string]bool)
	for _, slots := range cmd.Val() {
		if len(slots.Nodes) > 0 {
			masters[slots.Nodes[0].ID] = true
		}
	}
	return len(masters), nil
}

// runReadOnly runs a call that changes nothing, and returns as soon as ctx ends. A call that
// changes something may return later: see sender.
func runReadOnly(ctx context.Context, to *sender, call func() error) error {
	err, ended := detach.Call(ctx, detach.Go, call)
	if ended != nil {
		err = to.abandonedErr(ctx, false, nil)
	}
	return noAnswer(err)
}

// query runs a command that changes nothing. Its error includes the command's own.
func query(ctx context.Context, to *sender, cmd redis.Cmder) error {
	if err := runReadOnly(ctx, to, func() error { return to.do(ctx, noRetry{cmd}) }); err != nil {
		return err
	}
	return explain(cmd.Err())
}
