package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// command is never repeated by the client: whether that is safe, this package
// decides.
type command struct{ *redis.Cmd }

// NoRetry tells the client so.
func (command) NoRetry() bool { return true }

// execAll runs the calls of a batch in one pipeline, and says whether the server
// answered.
func (s *sender) execAll(batch []*call) (answered bool) {
	n := 0
	for _, c := range batch {
		n += len(c.commands)
	}
	commands := make([]redis.Cmder, 0, n+1)
	for _, c := range batch {
		commands = append(commands, c.commands...)
	}
	answered, acked := s.send(context.Background(), commands)
	for _, c := range batch {
		c.acked = unlessFailed(c.commands, acked)
	}
	return answered
}

// exec runs the commands of one call, and says whether the server answered and enough
// replicas acknowledged. The commands' own errors are in them.
func (s *sender) exec(ctx context.Context, commands []redis.Cmder) (answered bool, acked error) {
	answered, acked = s.send(ctx, commands)
	return answered, unlessFailed(commands, acked)
}

// unlessFailed returns what is known of the acknowledgement. If a command was not
// answered, that counts instead, and is in the command.
func unlessFailed(commands []redis.Cmder, acked error) error {
	for _, cmd := range commands {
		if unanswered(cmd.Err()) {
			return nil
		}
	}
	return acked
}

func (s *sender) send(ctx context.Context, commands []redis.Cmder) (answered bool, acked error) {
	var wait *redis.Cmd
	all := commands
	if s.replicas > 0 { // one for all, on the same connection
		wait = redis.NewCmd(ctx, "wait", s.replicas, millis(s.ackTimeout))
		all = slices.Concat(commands, []redis.Cmder{command{wait}})
	}
	if len(all) == 1 {
		_ = s.limited().Process(ctx, all[0])
	} else {
		pipe := s.limited().Pipeline()
		for _, cmd := range all {
			_ = pipe.Process(ctx, cmd) // only queues it
		}
		_, _ = pipe.Exec(ctx)
	}
	if wait != nil {
		acked = s.acknowledged(wait)
	}
	for _, cmd := range commands {
		if _, oneServer := s.client.(*redis.Client); oneServer && s.reload == nil && isRedirect(cmd.Err()) {
			cmd.SetErr(fmt.Errorf("%w: %w", errOneOfMany, cmd.Err()))
			continue
		}
		if err := cmd.Err(); unanswered(err) || err != nil && strings.HasPrefix(err.Error(), "MOVED") {
			s.lookForMasters(ctx)
			return false, acked
		}
	}
	return true, acked
}

// acknowledged reads the reply to WAIT. A server that refuses WAIT, because it has just
// become a replica, may have refused the commands as well: that is in them, and counts
// first.
func (s *sender) acknowledged(wait *redis.Cmd) error {
	if err := wait.Err(); unanswered(err) {
		return explain(err)
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReplicated, explain(err))
	}
	if n, _ := wait.Val().(int64); n < int64(s.replicas) {
		return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, n, s.replicas, s.ackTimeout)
	}
	return nil
}

// unanswered says that an error is not the server's.
func unanswered(err error) bool {
	if err == nil {
		return false
	}
	_, reply := errors.AsType[redis.Error](err)
	return !reply
}

// lookForMasters makes the client of a cluster find out who has taken over from
// a server that does not answer. It would do so itself if it repeated commands.
func (s *sender) lookForMasters(ctx context.Context) {
	if s.reload != nil {
		s.reload(ctx) // in the background
	}
}
