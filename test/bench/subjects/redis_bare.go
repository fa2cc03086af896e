package subjects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// bareRedis sends the commands that dlock sends, over a client like dlock's, with
// nothing around them. It records them from dlock itself.
func bareRedis(protocol redislock.Protocol) overRedis {
	return func(ctx context.Context, c redis.UniversalClient, addr string) (func(string) Worker, error) {
		recorded, err := recordCommands(ctx, addr, protocol)
		if err != nil {
			return nil, fmt.Errorf("recording the commands of dlock: %w", err)
		}
		return func(name string) Worker {
			values := strings.NewReplacer(recorded.name, name, recorded.owner, driver.NewOwner().Hex())
			acquire, release := recorded.lock.with(values), recorded.unlock.with(values)
			var last uint64 // token of the grant
			return Worker{
				Lock: polling(func(ctx context.Context) (granted bool, err error) {
					proposed := uint64(time.Now().UnixMicro())
					replies, err := acquire.send(ctx, c, proposed)
					if err != nil {
						return false, err
					}
					switch reply := replies[len(replies)-1].(type) {
					case string: // the token
						last, err = strconv.ParseUint(reply, 10, 64)
						granted = err == nil
					case []any: // of a transaction; a held lock is another reply
						last, granted = proposed, slices.Contains(reply, any("OK"))
					}
					return granted, nil
				}),
				Unlock: func(ctx context.Context) error {
					replies, err := release.send(ctx, c, last)
					return released(err == nil && replies[0] == int64(1), err) // the rest of the reply is for waiters
				},
			}
		}, nil
	}
}

// recording holds the commands that dlock sends for an uncontended lock.
type recording struct {
	name, owner  string // what the commands contain
	lock, unlock template
}

// template is a sequence of commands, in which only tokens are missing.
type template [][]argument

// argument is a constant, or text around a token of a grant.
type argument struct {
	constant      any
	before, after string
	token         bool
	fromLast      uint64 // how far the token comes before the last one
}

// with replaces texts.
func (t template) with(values *strings.Replacer) template {
	replaced := make(template, len(t))
	for i, command := range t {
		for _, a := range command {
			a.before, a.after = values.Replace(a.before), values.Replace(a.after)
			if text, ok := a.constant.(string); ok {
				a.constant = values.Replace(text)
			}
			replaced[i] = append(replaced[i], a)
		}
	}
	return replaced
}

// send runs the commands for the grant with that last token, and returns the replies.
func (t template) send(ctx context.Context, c redis.UniversalClient, last uint64) ([]any, error) {
	cmds := make([]*redis.Cmd, len(t))
	for i, command := range t {
		args := make([]any, len(command))
		for j, a := range command {
			args[j] = a.constant
			if a.token {
				args[j] = a.before + strconv.FormatUint(last-a.fromLast, 10) + a.after
			}
		}
		cmds[i] = redis.NewCmd(ctx, args...)
	}
	if len(cmds) == 1 {
		_ = c.Process(ctx, cmds[0]) // the error is in the command; Do would not be pipelined
		return []any{cmds[0].Val()}, cmds[0].Err()
	}
	pipe := c.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only queues it
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	replies := make([]any, len(cmds))
	for i, cmd := range cmds {
		replies[i] = cmd.Val()
	}
	return replies, nil
}

// recordCommands acquires and releases a lock with a client of dlock, and records
// the commands that it sends.
func recordCommands(ctx context.Context, addr string, protocol redislock.Protocol) (r *recording, err error) {
	seen := new(recorder)
	// With ContextTimeoutEnabled the store uses this client, and not a copy
	// without the hook.
	connection := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	connection.AddHook(seen)
	store, err := redislock.New(connection, &redislock.Options{Protocol: protocol})
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	client := dlock.New(store, nil)
	defer func() { err = errors.Join(err, client.Close(), store.Close(), connection.Close()) }()

	r = &recording{name: "bench/recorded/" + driver.NewOwner().Hex()} // unique across processes
	// The first calls read the server's clock and load the scripts.
	for range 3 {
		seen.take()
		lease, err := client.Lock(ctx, r.name)
		if err != nil {
			return nil, err
		}
		lock := seen.take()
		if err = lease.Unlock(ctx); err != nil {
			return nil, err
		}
		step := store.Traits().TokenStep
		r.lock, r.unlock = templateOf(lock, lease.Token(), step), templateOf(seen.take(), lease.Token(), step)
	}
	for _, a := range slices.Concat(r.unlock...) {
		if owner, found := strings.CutSuffix(a.before, ":"); found && a.token { // the value of a holder
			r.owner = owner
			return r, nil
		}
	}
	return nil, fmt.Errorf("no holder value with a token in %v", r.unlock)
}

// templateOf finds the first and the last token of the grant in the commands.
func templateOf(commands [][]any, first, step uint64) (t template) {
	for _, command := range commands {
		var arguments []argument
		for _, arg := range command {
			a := argument{constant: arg}
			for _, fromLast := range []uint64{0, step - 1} {
				text := strconv.FormatUint(first+step-1-fromLast, 10)
				if before, after, found := strings.Cut(fmt.Sprint(arg), text); found {
					a = argument{arg, before, after, true, fromLast}
				}
			}
			arguments = append(arguments, a)
		}
		t = append(t, arguments)
	}
	return t
}

// recorder is a hook of go-redis that records commands.
type recorder struct {
	mu       sync.Mutex
	commands [][]any
}

// take returns the commands since the last call.
func (r *recorder) take() [][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	commands := r.commands
	r.commands = nil
	return commands
}

func (r *recorder) record(commands ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range commands {
		if cmd.Name() != "hello" && cmd.Name() != "client" { // the handshake of a new connection
			r.commands = append(r.commands, slices.Clone(cmd.Args()))
		}
	}
}

// DialHook changes nothing.
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook records a single command.
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.record(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook records the commands of a pipeline.
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		r.record(commands...)
		return next(ctx, commands)
	}
}
