package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestRefusedRenewalIsNoLoss: a server that does not write now, because it is a replica or has
// none, does not say that a lock is not held.
func TestRefusedRenewalIsNoLoss(t *testing.T) {
	t.Parallel()
	for reply, command := range map[string][]any{
		"READONLY":   {"replicaof", "127.0.0.1", "1"},
		"NOREPLICAS": {"config", "set", "min-replicas-to-write", "1"},
	} {
		server := servers.Run(t, servers.Redis, inMemory...)
		redisson, _ := openURL(t, server.URL())
		plain, _ := openURL(t, server.URL()+"?protocol=plain")
		grants := map[driver.Store][]driver.Grant{
			plain:    {acquireOne(t, plain, "plain")},
			redisson: {acquireOne(t, redisson, "x")},
		}
		for _, mode := range []driver.Mode{shared, permits} {
			grants[redisson] = append(grants[redisson], mustAcquire(t, redisson, inMode(mode, mode.String())))
		}
		must(t, clients(t, server.Addr())[0].Do(t.Context(), command...).Err())
		for store, list := range grants {
			for i := range list {
				list[i].TTL = time.Hour // so that the renewal has to write
			}
			errs := store.Renew(t.Context(), list)
			if len(errs) != len(list) {
				t.Errorf("%s: Renew: %v; want an error for each of %d locks", reply, errs, len(list))
			}
			for i, err := range errs {
				if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("%s: Renew of %q: %v; want ErrUnreachable", reply, list[i].Name, err)
				}
			}
		}
	}
}

// TestLimitCostsTheServerNothing: the work of the server depends on the permits in use, not on the
// limit.
func TestLimitCostsTheServerNothing(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	acquireOne(t, store, "warm") // from now on the server's clock is known
	fresh, _ := openURL(t, server.URL())
	grant := mustAcquire(t, store, inMode(driver.Mode{Limit: 1_000_000}, "x"))
	before := callsOf(t, raw, "pttl")
	for _, s := range []driver.Store{store, fresh} {
		for _, mode := range []driver.Mode{{}, shared, permits} {
			if _, err := s.Acquire(t.Context(), inMode(mode, "x")); !errors.Is(err, driver.ErrMode) {
				t.Errorf("Acquire in mode %v: %v; want ErrMode", mode, err)
			}
		}
	}
	if info, found := listed(t, store, "x")["x"]; !found || info.Mode.Limit != 1_000_000 {
		t.Errorf("the semaphore is listed as %+v, %v", info, found)
	}
	mustRelease(t, store, grant)
	if n := callsOf(t, raw, "pttl") - before; n > 100 {
		t.Errorf("%d calls of PTTL for one permit", n)
	}
}

// TestLateAcquisitionProlongsTheShare: an exclusive attempt that is carried out after the downgrade
// starts the TTL of the share again, not only that of the lock.
func TestLateAcquisitionProlongsTheShare(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	acquireOne(t, store, "warm")
	fresh, _ := openURL(t, server.URL()) // reads the server's clock first
	for name, late := range map[string]driver.Store{"estimate": store, "clock": fresh} {
		req := inMode(driver.Mode{}, name)
		grant := mustAcquire(t, store, req)
		must(t, store.(driver.Downgrader).Downgrade(t.Context(), grant))
		keys := []string{name, "{" + name + "}:" + req.Owner.Hex() + ":rwlock_timeout:1"}
		for _, key := range keys {
			must(t, raw.PExpire(t.Context(), key, 10*time.Second).Err())
		}
		if again := mustAcquire(t, late, req); again.Token != grant.Token {
			t.Errorf("%s: the token is %d; want %d", name, again.Token, grant.Token)
		}
		for _, key := range keys {
			if left := raw.PTTL(t.Context(), key).Val(); left < 30*time.Second {
				t.Errorf("%s expires in %v; want a minute", key, left)
			}
		}
	}
}

// scriptHook records how many keys each script has. If before returns an error, the script is not
// sent.
type scriptHook struct {
	keys   []int
	before func(keys int) error
}

func (h *scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			keys := cmd.Args()[2].(int)
			h.keys = append(h.keys, keys)
			if err := h.before(keys); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// TestWriterPlacesAreForgotten: the store remembers which owners may have a place in writers, and
// asks for these with another script. It forgets an owner that an exclusive holder refused, and one
// that was released, even if the release failed.
func TestWriterPlacesAreForgotten(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	other, _ := openURL(t, server.URL())
	nothing := func(int) error { return nil }
	hook := &scriptHook{before: nothing}
	store := newStore(t, "redisson", &redis.Options{Addr: server.Addr()}, hook)
	const exclusive, anyMode, release = 2, 5, 4 // the keys of the scripts
	ask := func(req driver.Request, mode driver.Mode, scripts ...int) {
		t.Helper()
		hook.keys = nil
		_, err := store.Acquire(t.Context(), req)
		held, refused := errors.AsType[*driver.HeldError](err)
		if !refused || held.Mode != mode {
			t.Errorf("Acquire: %v; want that it is held in mode %v", err, mode)
		}
		if !slices.Equal(hook.keys, scripts) {
			t.Errorf("Acquire ran scripts with %v keys; want %v", hook.keys, scripts)
		}
	}

	// An exclusive holder follows the reader between the two scripts of an attempt.
	reader := mustAcquire(t, other, inMode(shared, "x"))
	req := inMode(driver.Mode{}, "x")
	req.Queue = true
	var holder driver.Grant
	hook.before = func(keys int) (err error) {
		if keys == anyMode {
			err = other.Release(t.Context(), reader)
		}
		if err == nil && keys == anyMode {
			holder, err = other.Acquire(t.Context(), inMode(driver.Mode{}, "x"))
		}
		return err
	}
	ask(req, driver.Mode{}, exclusive, anyMode)
	hook.before = nothing
	ask(req, driver.Mode{}, exclusive)
	mustRelease(t, other, holder)

	// A reader refuses the request, and the release of its place fails.
	mustAcquire(t, other, inMode(shared, "x"))
	ask(req, shared, exclusive, anyMode)
	ask(req, shared, anyMode)
	hook.before = func(keys int) error {
		if keys == release {
			return &net.OpError{Op: "read", Err: errors.New("connection reset")}
		}
		return nil
	}
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: req.Owner}); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Release: %v; want ErrUnreachable", err)
	}
	hook.before = nothing
	ask(req, shared, exclusive, anyMode)
}
