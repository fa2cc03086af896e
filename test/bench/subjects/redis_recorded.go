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

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// recordedCommands are the commands that dlock sends for an uncontended lock.
type recordedCommands struct{ lock, unlock template }

// template is a sequence of commands with placeholders for a name, an owner and a
// token.
type template []filled

// filled holds the arguments of a command in which only the token is missing.
type filled []argument

// argument is a constant, or text around a token of a grant.
type argument struct {
	constant      any
	before, after string
	token         bool
	fromLast      uint64 // how far the token comes before the last one
}

// arguments returns the arguments for the grant with that last token.
func (f filled) arguments(last uint64) []any {
	all := make([]any, len(f))
	for i, a := range f {
		all[i] = a.constant
		if a.token {
			all[i] = a.before + strconv.FormatUint(last-a.fromLast, 10) + a.after
		}
	}
	return all
}

// The placeholders for a name and an owner.
const anyName, anyOwner = "<NAME>", "<OWNER>"

// recordCommands acquires and releases a lock with a client of dlock, and records
// the commands that it sends.
func recordCommands(ctx context.Context, addr string, protocol redislock.Protocol) (c *recordedCommands, err error) {
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

	name := "bench/recorded/" + driver.NewOwner().Hex() // unique across processes
	var lease *dlock.Lease
	// The first calls read the server's clock and load the scripts.
	for range 3 {
		c = new(recordedCommands)
		seen.clear()
		if lease, err = client.Lock(ctx, name); err != nil {
			return nil, err
		}
		c.lock = seen.template(lease.Token(), store.Traits().TokenStep)
		seen.clear()
		if err = lease.Unlock(ctx); err != nil {
			return nil, err
		}
		c.unlock = seen.template(lease.Token(), store.Traits().TokenStep)
	}
	return c, c.anonymize(name)
}

// anonymize replaces the name and the owner by placeholders. The owner precedes
// the token in the holder value.
func (c *recordedCommands) anonymize(name string) error {
	c.lock.replace(name, anyName)
	c.unlock.replace(name, anyName)
	for _, command := range c.unlock {
		for _, a := range command {
			if owner, found := strings.CutSuffix(a.before, ":"); found && a.token {
				c.lock.replace(owner, anyOwner)
				c.unlock.replace(owner, anyOwner)
				return nil
			}
		}
	}
	return fmt.Errorf("no holder value with a token in %v", c.unlock)
}

// fill returns a template for a name and an owner.
func (t template) fill(name, owner string) template {
	copied := make(template, len(t))
	for i, command := range t {
		copied[i] = slices.Clone(command)
	}
	copied.replace(anyName, name)
	copied.replace(anyOwner, owner)
	return copied
}

func (t template) replace(old, with string) {
	for _, command := range t {
		for i := range command {
			a := &command[i]
			a.before, a.after = strings.ReplaceAll(a.before, old, with), strings.ReplaceAll(a.after, old, with)
			if text, ok := a.constant.(string); ok {
				a.constant = strings.ReplaceAll(text, old, with)
			}
		}
	}
}

// recorder is a hook of go-redis that records commands.
type recorder struct {
	mu       sync.Mutex
	commands [][]any
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = nil
}

// template returns the recorded commands without the first and the last token of the grant.
func (r *recorder) template(first, step uint64) template {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t template
	for _, command := range r.commands {
		var f filled
		for _, arg := range command {
			a := argument{constant: arg}
			for _, fromLast := range []uint64{0, step - 1} {
				text := strconv.FormatUint(first+step-1-fromLast, 10)
				if before, after, found := strings.Cut(fmt.Sprint(arg), text); found {
					a = argument{arg, before, after, true, fromLast}
				}
			}
			f = append(f, a)
		}
		t = append(t, f)
	}
	return t
}

func (r *recorder) record(commands ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range commands {
		if slices.Contains([]string{"hello", "client"}, cmd.Name()) {
			continue // the handshake of a new connection
		}
		r.commands = append(r.commands, slices.Clone(cmd.Args()))
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
