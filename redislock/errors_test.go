package redislock

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// refusal is a server's reply.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// TestRefusedWaitIsNotReplicated: a server that has become a replica between a command and its
// WAIT has not acknowledged, and another attempt is worth it.
func TestRefusedWaitIsNotReplicated(t *testing.T) {
	for _, text := range []string{
		"ERR WAIT cannot be used with replica instances. Please also note that ...",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	} {
		wait := redis.NewCmd(t.Context(), "wait", 1, 1000)
		wait.SetErr(refusal(text))
		err := (&sender{replicas: 1}).acknowledged(wait)
		if !errors.Is(err, ErrNotReplicated) || !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("%q: %v; want ErrNotReplicated and ErrUnreachable", text, err)
		}
	}
}

// TestServerThatCannotServeNowIsUnreachable: a server that is loading its data, or whose key has moved to another server,
// is worth another attempt, whatever its version.
func TestServerThatCannotServeNowIsUnreachable(t *testing.T) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"ERR Script attempted to access a non local key in a cluster node script: 02fc408a, on @user_script:55.",
		"ERR Error running script (call to f_02fc408a): @user_script:55: Script attempted to access a non local key in a cluster node",
	} {
		if err := explain(refusal(text)); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("%q: %v; want ErrUnreachable", text, err)
		}
	}
}

// opaque is the error of a hook that says nothing of what it wraps.
type opaque struct{ error }

func (o opaque) Error() string { return "a call failed" }
func (o opaque) Unwrap() error { return o.error }

// TestWrappedErrorsKeepTheirMeaning: hooks of the program's client wrap what the server said, and it
// means the same as without them.
func TestWrappedErrorsKeepTheirMeaning(t *testing.T) {
	for what, wrap := range map[string]func(error) error{
		"with a prefix":     func(err error) error { return fmt.Errorf("redis: %w", err) },
		"together":          func(err error) error { return fmt.Errorf("%w: %w", errors.New("failed"), err) },
		"without its text":  func(err error) error { return opaque{err} },
		"by several layers": func(err error) error { return opaque{errors.Join(fmt.Errorf("get: %w", err))} },
	} {
		t.Run(what, func(t *testing.T) {
			for _, reply := range replies {
				err := wrap(refusal(reply.code + " and more"))
				if explained := explain(err); !errors.Is(explained, reply.kind) || !strings.Contains(explained.Error(), reply.meaning) {
					t.Errorf("%q: %v; want %q", reply.code, explained, reply.meaning)
				}
			}
			for text, is := range map[string]func(error) bool{
				"NOSCRIPT No matching script.":            isUnknownScript,
				"MOVED 3999 127.0.0.1:6381":               isRedirect,
				"ASK 3999 127.0.0.1:6381":                 isRedirect,
				"CROSSSLOT Keys in request":               isCrossSlot,
				"NOPERM this user":                        isRefusal,
				"READONLY You can't write":                noLongerMaster,
				"ERR Error running script: -READONLY You": noLongerMaster,
			} {
				if !is(wrap(refusal(text))) {
					t.Errorf("%q is not recognized", text)
				}
			}
			if err := explain(wrap(redis.Nil)); err != nil {
				t.Errorf("a reply of nil: %v", err)
			}
			noMaster := wrap(fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil, redis.Nil)))
			if err := explain(noMaster); !errors.Is(err, driver.ErrMisconfigured) {
				t.Errorf("Sentinels that know no master: %v; want ErrMisconfigured", err)
			}
		})
	}
}

// TestAttemptWithoutAConnectionIsNotSent: an attempt without a connection has nothing to undo, and says so. Otherwise
// the next call would wait for that. The store knows the server's cluster mode after its first call only.
func TestAttemptWithoutAConnectionIsNotSent(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close() // its port refuses connections
	reqs := []driver.Request{
		{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute},
		{Name: "b", Owner: driver.NewOwner(), TTL: time.Minute},
	}
	for _, protocol := range []Protocol{Redisson, Plain} {
		client := redis.NewClient(&redis.Options{Addr: free.Addr().String(), DialerRetries: 1})
		defer client.Close()
		store, err := New(client, &Options{Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		for _, known := range []bool{false, true} {
			store.clusterKnown.Store(known)
			_, one := store.Acquire(t.Context(), reqs[0])
			_, all := store.AcquireAll(t.Context(), reqs)
			for what, err := range map[string]error{"Acquire": one, "AcquireAll": all} {
				if !errors.Is(err, driver.ErrUnreachable) || !driver.Unchanged(err) {
					t.Errorf("%v: %s: %v; want ErrUnreachable, marked as not sent", protocol, what, err)
				}
			}
		}
	}
}
