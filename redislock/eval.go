package redislock

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// eval runs one script, which replicas have to acknowledge if that is wanted: the
// error is ErrNotReplicated then, beside the reply.
func (s *Store) eval(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	return s.acked.eval(ctx, sc.where(s.cluster.Load()), keys, args)
}

// evalUnacknowledged runs one that they need not.
func (s *Store) evalUnacknowledged(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	return s.route.eval(ctx, sc.where(s.cluster.Load()), keys, args)
}

func (r *route) eval(ctx context.Context, sc *script, keys []string, args []any) (any, error) {
	cmd := sc.bySHA(ctx, keys, args)
	err := r.do(ctx, keys[0], cmd)
	if returned(err) && forgotten(cmd.Err()) {
		cmd = sc.bySource(ctx, keys, args)
		err = r.do(ctx, keys[0], cmd)
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
