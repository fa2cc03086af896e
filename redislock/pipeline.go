package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/redis/go-redis/v9"
)

// command is never repeated by the client: this package decides whether that is safe.
type command struct{ *redis.Cmd }

// NoRetry keeps the client from repeating the command.
func (command) NoRetry() bool { return true }

// unrepeated is the same for commands of any type.
type unrepeated struct{ redis.Cmder }

// NoRetry keeps the client from repeating the command.
func (unrepeated) NoRetry() bool { return true }

// whileSending returns the context of a call that its caller sends. A caller with enough time
// waits for a connection until the client's own timeout. For any other caller the context ends at
// the deadline: while the client waits for a connection, it ignores the deadline itself.
func whileSending(ctx context.Context, maySend bool) (sending context.Context, end func()) {
	at, limited := ctx.Deadline()
	if maySend || !limited {
		return uncancelled{context.WithoutCancel(ctx), ctx}, func() {}
	}
	short := deadline.After(context.WithoutCancel(ctx), time.Until(at))
	return short, short.End
}

// uncancelled has the deadline of the caller's context but is not cancelled with it, because the
// client would close the connection.
type uncancelled struct {
	context.Context
	caller context.Context
}

func (u uncancelled) Deadline() (time.Time, bool) { return u.caller.Deadline() }

// execAll runs the calls of a batch in one pipeline. It returns why the server did not answer, or
// nil.
func (s *sender) execAll(batch []*call) (failure error) {
	n := 0
	for _, c := range batch {
		n += len(c.commands)
	}
	commands := make([]redis.Cmder, 0, n+1)
	for _, c := range batch {
		commands = append(commands, c.commands...)
	}
	failure, acked := s.send(context.Background(), commands)
	for _, c := range batch {
		c.acked = unlessFailed(c.commands, acked)
	}
	return failure
}

// unlessFailed returns acked, or nil if a command was not answered: its own error counts then.
func unlessFailed(commands []redis.Cmder, acked error) error {
	if slices.ContainsFunc(commands, func(cmd redis.Cmder) bool { return unanswered(cmd.Err()) }) {
		return nil
	}
	return acked
}

// send runs commands in one pipeline. failure is why the server did not answer, and acked is
// ErrNotReplicated if too few replicas acknowledged. The commands hold their own errors.
func (s *sender) send(ctx context.Context, commands []redis.Cmder) (failure, acked error) {
	var wait *redis.Cmd
	all := commands
	if s.replicas > 0 { // one WAIT for all commands, on their connection
		wait = redis.NewCmd(ctx, "wait", s.replicas, millis(s.ackTimeout))
		all = slices.Concat(commands, []redis.Cmder{command{wait}})
	}
	if len(all) == 1 {
		_ = s.limited.Process(ctx, all[0])
	} else {
		pipe := s.limited.Pipeline()
		for _, cmd := range all {
			_ = pipe.Process(ctx, cmd) // only queues it
		}
		_, err := pipe.Exec(ctx)
		if err != nil && !slices.ContainsFunc(all, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
			for _, cmd := range all { // the client leaves them as they are if Sentinel, or the log-in, was refused
				cmd.SetErr(err)
			}
		}
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
			if s.reload != nil {
				// A replica may have taken over. The client would search for it if it
				// repeated commands.
				s.reload(ctx) // in the background
			}
			return err, acked
		}
	}
	return nil, acked
}

// acknowledged reads the reply to WAIT. A server that has just become a replica refuses WAIT. It
// may have refused the commands as well, and then their errors count.
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

// unanswered reports whether an error is not a reply of the server.
func unanswered(err error) bool {
	if err == nil {
		return false
	}
	_, reply := errors.AsType[redis.Error](err)
	return !reply
}
