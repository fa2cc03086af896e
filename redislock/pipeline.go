package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/redis/go-redis/v9"
)

// command and unrepeated are never repeated by the client: this package decides whether that is safe.
type (
	command    struct{ *redis.Cmd }
	unrepeated struct{ redis.Cmder } // of any type
)

func (command) NoRetry() bool    { return true }
func (unrepeated) NoRetry() bool { return true }

// whileSending returns the context of a call that its caller sends. It ends at the deadline of a
// caller with little time, because a client that waits for a connection ignores the deadline itself.
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

// execAll runs the calls of a batch in one pipeline, and returns why the server did not answer.
func (s *sender) execAll(batch []*call) (failure error) {
	n := 0
	for _, c := range batch {
		n += len(c.commands)
	}
	commands := make([]redis.Cmder, 0, n)
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
		wait = redis.NewCmd(ctx, "wait", s.replicas, millis(s.route.ackTimeout))
		all = slices.Concat(commands, []redis.Cmder{command{wait}})
	}
	if len(all) == 1 {
		_ = s.limited.Process(ctx, all[0])
	} else {
		pipe := s.limited.Pipeline()
		_ = pipe.BatchProcess(ctx, all...) // only queues them
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
		_, oneServer := s.client.(*redis.Client)
		switch err := cmd.Err(); {
		case isRedirect(err) && oneServer && s.route.cluster == nil:
			cmd.SetErr(fmt.Errorf("%w: %w", errOneOfMany, err))
		case unanswered(err) || begins(err, "MOVED"):
			// A replica may have taken over. The client would search for it if it repeated commands.
			s.route.reload(ctx)
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
		return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, n, s.replicas, s.route.ackTimeout)
	}
	return nil
}
