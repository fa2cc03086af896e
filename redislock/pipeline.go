package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/redis/go-redis/v9"
)

// go-redis does not repeat commands of these types: only this package knows whether that is safe.
type (
	noRetryCmd struct{ *redis.Cmd }
	noRetry    struct{ redis.Cmder } // of any type
)

func (noRetryCmd) NoRetry() bool { return true }
func (noRetry) NoRetry() bool    { return true }

// sendingContext returns the context for a call that its caller sends. It ends at the deadline of a
// caller with little time: a client that waits for a connection ignores the deadline itself.
func sendingContext(ctx context.Context, hasTimeToSend bool) (sending context.Context, end func()) {
	at, limited := ctx.Deadline()
	if hasTimeToSend || !limited {
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

// sendBatch runs the calls of a batch in one pipeline, and returns why the server did not answer.
func (s *sender) sendBatch(batch []*call) (failure error) {
	n := 0
	for _, c := range batch {
		n += len(c.commands)
	}
	commands := make([]redis.Cmder, 0, n)
	for _, c := range batch {
		commands = append(commands, c.commands...)
	}
	failure, ackErr := s.send(context.Background(), commands)
	for _, c := range batch {
		c.ackErr = ackErrUnlessUnanswered(c.commands, ackErr)
	}
	return failure
}

// ackErrUnlessUnanswered returns ackErr, or nil if a command has no answer: its own error counts.
func ackErrUnlessUnanswered(commands []redis.Cmder, ackErr error) error {
	if slices.ContainsFunc(commands, func(cmd redis.Cmder) bool { return unanswered(cmd.Err()) }) {
		return nil
	}
	return ackErr
}

// send runs commands in one pipeline. failure is why the server did not answer, and ackErr is
// ErrNotReplicated if too few replicas acknowledged. The commands contain their own errors.
func (s *sender) send(ctx context.Context, commands []redis.Cmder) (failure, ackErr error) {
	var wait *redis.Cmd
	all := commands
	if s.replicas > 0 { // one WAIT for all commands, on their connection
		wait = redis.NewCmd(ctx, "wait", s.replicas, millis(s.route.ackTimeout))
		all = slices.Concat(commands, []redis.Cmder{noRetryCmd{wait}})
	}
	if len(all) == 1 {
		_ = s.timedClient.Process(ctx, all[0])
	} else {
		pipe := s.timedClient.Pipeline()
		_ = pipe.BatchProcess(ctx, all...) // only queues them
		_, err := pipe.Exec(ctx)
		if err != nil && !slices.ContainsFunc(all, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
			for _, cmd := range all { // go-redis does not do it if it could not log in or ask Sentinel
				cmd.SetErr(err)
			}
		}
	}
	if wait != nil {
		ackErr = s.acknowledged(wait)
	}
	for _, cmd := range commands {
		_, oneServer := s.client.(*redis.Client)
		switch err := cmd.Err(); {
		case isRedirect(err) && oneServer && s.route.cluster == nil:
			cmd.SetErr(fmt.Errorf("%w: %w", errWrongServer, err))
		case unanswered(err) || begins(err, "MOVED"):
			// A replica may have taken over. The client itself would search only to repeat commands.
			s.route.reload(ctx)
			return err, ackErr
		case noLongerMaster(err): // over a connection for readers it does not name the new one
			s.route.reload(ctx)
		}
	}
	return nil, ackErr
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
