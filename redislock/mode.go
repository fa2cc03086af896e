package redislock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// A server in cluster mode keeps keys in slots: a script may use the keys of one slot
// only. A client of Cluster tells by its type that it has such servers. Another client
// may have one all the same: redis.NewClient with a server that has all slots, or a
// type of the caller's around a client of Cluster. So the store asks the server before
// its first call.

// learnMode makes sure that the store knows the server's mode, in one round trip.
func (s *Store) learnMode(ctx context.Context) error {
	if !s.modeKnown.Load() {
		slots, err := s.askMode(ctx)
		if err != nil {
			return err
		}
		if slots {
			s.cluster.Store(true)
		}
		s.modeKnown.Store(true)
	}
	if s.replicas > 0 && s.hidden() {
		return fmt.Errorf("%w: Replicas needs the *redis.ClusterClient itself: through a %T, WAIT may reach another server than the lock",
			driver.ErrUnsupported, s.client)
	}
	return nil
}

// askMode asks the server whether it keeps keys in slots. HELLO tells that to every
// user, whatever its permissions are, and changes nothing without arguments; but some
// servers do not know it, and others that refuse keys of several slots do not call
// that cluster mode. So the server is given keys of two slots as well, which it does
// not look at.
func (s *Store) askMode(ctx context.Context) (slots bool, err error) {
	hello := command{redis.NewCmd(ctx, "hello")}
	both := command{redis.NewCmd(ctx, "eval", "return 1", 2, "dlock:slot:{a}", "dlock:slot:{b}")}
	if err := s.route.all.do(ctx, hello, both); err != nil {
		return false, err
	}
	if hello.Err() == nil && modeOf(hello.Val()) == "cluster" || crossesSlots(both.Err()) {
		return true, nil
	}
	for _, err := range []error{hello.Err(), both.Err()} {
		if unanswered(err) || errors.Is(explain(err), driver.ErrUnreachable) || err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
			return false, explain(err)
		}
	}
	return false, nil
}

// modeOf finds the mode in a reply to HELLO: a map, or in the older protocol a list of
// names and values.
func modeOf(reply any) string {
	fields, _ := reply.(map[any]any)
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		if list[i] == "mode" {
			fields = map[any]any{"mode": list[i+1]}
		}
	}
	mode, _ := fields["mode"].(string)
	return mode
}

// crossesSlots reports whether a server has refused a call, and done nothing, because
// of keys in several slots.
func crossesSlots(err error) bool { return err != nil && strings.Contains(err.Error(), "CROSSSLOT") }

// foundSlots reports whether a call found out that the server has slots, which was not
// known when the call began: then it is worth another attempt. The server has not told
// before, or was replaced.
func (s *Store) foundSlots(knew bool, err error) bool {
	if knew || !crossesSlots(err) {
		return false
	}
	s.cluster.Store(true)
	return true
}

// hidden reports whether there are slots, and a client that has not the methods of a
// client of Cluster but may be one.
func (s *Store) hidden() bool {
	_, oneServer := s.client.(*redis.Client)
	return s.cluster.Load() && s.route.cluster == nil && !oneServer
}

// shards returns what finds the server of a channel. It is nil where there are no
// shards, or only the client can find them.
func (s *Store) shards() clusterClient {
	if s.route.cluster != nil {
		return s.route.cluster
	}
	if one, ok := s.client.(*redis.Client); ok && s.cluster.Load() {
		return oneShard{one}
	}
	return nil
}

// oneShard is the only server of a cluster, or the only one that its client knows.
type oneShard struct{ client *redis.Client }

func (o oneShard) MasterForKey(context.Context, string) (*redis.Client, error) { return o.client, nil }

func (o oneShard) ForEachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	return fn(ctx, o.client)
}

func (o oneShard) ForEachShard(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	return fn(ctx, o.client)
}

func (oneShard) ReloadState(context.Context) {}

// errOneOfMany is the answer of a server to a client for one server that has not the
// key. No attempt changes that.
var errOneOfMany = errors.New("the server is one of several of a cluster, and the lock is on another one: " +
	"the client has to be one of Cluster (redis.NewClusterClient, redis+cluster:// in a URL)")

// countMasters asks a server of a cluster how many masters have slots.
func countMasters(ctx context.Context, server *sender) (int, error) {
	cmd := command{redis.NewCmd(ctx, "cluster", "slots")}
	if err := askOne(ctx, server, cmd); err != nil {
		return 0, err
	}
	masters := make(map[string]bool)
	ranges, _ := cmd.Val().([]any)
	for _, r := range ranges { // {first, last, {host, port, id, ...}, ...}
		if fields, _ := r.([]any); len(fields) > 2 {
			if master, _ := fields[2].([]any); len(master) > 2 {
				masters[fmt.Sprint(master[2])] = true
			}
		}
	}
	return len(masters), nil
}

// isRing reports whether a client is a Ring, or a type that embeds one.
func isRing(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	for v.IsValid() {
		if v.Type() == reflect.TypeFor[*redis.Ring]() {
			return true
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			v = v.Elem()
		case reflect.Struct:
			v = embeddedClient(v)
		default:
			return false
		}
	}
	return false
}

// embeddedClient returns the client that a struct embeds. It is invalid if there is
// none.
func embeddedClient(v reflect.Value) reflect.Value {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous && f.Type.Implements(reflect.TypeFor[redis.UniversalClient]()) {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}
