package main

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

// lesson is what dlock sends for a lock that nobody else wants.
type lesson struct{ lock, unlock template }

// template is commands, with places for a name, an owner and a token.
type template []filled

// filled is the arguments of a command that lacks only the token.
type filled []argument

// argument is a constant, or text around a token.
type argument struct {
	constant      any
	before, after string
	token         bool
}

func (f filled) arguments(token string) []any {
	all := make([]any, len(f))
	for i, a := range f {
		all[i] = a.constant
		if a.token {
			all[i] = a.before + token + a.after
		}
	}
	return all
}

// What stands for a name and an owner.
const anyName, anyOwner = "<NAME>", "<OWNER>"

// learn lets a client of dlock take and give a lock, and looks at what it sends.
func learn(ctx context.Context, addr string, protocol redislock.Protocol) (l *lesson, err error) {
	seen := new(recorder)
	// With it the store uses this client and not a twin without the hook.
	connection := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	connection.AddHook(seen)
	store, err := redislock.New(connection, &redislock.Options{Protocol: protocol})
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	client := dlock.New(store, nil)
	defer func() { err = errors.Join(err, client.Close(), store.Close(), connection.Close()) }()

	name := "bench/lesson/" + driver.NewOwner().Hex() // nobody else's, in no process
	var lease *dlock.Lease
	// At first it learns the server's clock and loads its scripts.
	for range 3 {
		l = new(lesson)
		seen.clear()
		if lease, err = client.Lock(ctx, name); err != nil {
			return nil, err
		}
		l.lock = seen.template(lease.Token())
		seen.clear()
		if err = lease.Unlock(ctx); err != nil {
			return nil, err
		}
		l.unlock = seen.template(lease.Token())
	}
	return l, l.anonymize(name)
}

// anonymize takes out the name, and the owner, who is in the mark before the token.
func (l *lesson) anonymize(name string) error {
	l.lock.replace(name, anyName)
	l.unlock.replace(name, anyName)
	for _, command := range l.unlock {
		for _, a := range command {
			if owner, marked := strings.CutSuffix(a.before, ":"); marked && a.token {
				l.lock.replace(owner, anyOwner)
				l.unlock.replace(owner, anyOwner)
				return nil
			}
		}
	}
	return fmt.Errorf("there is no mark with a token in %v", l.unlock)
}

// fill returns a template for another name and owner.
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

// recorder is a hook of go-redis that remembers what is sent.
type recorder struct {
	mu       sync.Mutex
	commands [][]any
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = nil
}

// template is what was seen, without the token.
func (r *recorder) template(token uint64) template {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strconv.FormatUint(token, 10)
	var t template
	for _, command := range r.commands {
		var f filled
		for _, arg := range command {
			before, after, found := strings.Cut(fmt.Sprint(arg), text)
			f = append(f, argument{arg, before, after, found})
		}
		t = append(t, f)
	}
	return t
}

func (r *recorder) see(commands ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range commands {
		if slices.Contains([]string{"hello", "client"}, cmd.Name()) {
			continue // the greeting of a new connection
		}
		r.commands = append(r.commands, slices.Clone(cmd.Args()))
	}
}

// DialHook changes nothing.
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook sees single commands.
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.see(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook sees several.
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		r.see(commands...)
		return next(ctx, commands)
	}
}
