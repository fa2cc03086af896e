package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// temporary are the replies of a server that cannot serve now, and what they mean.
var temporary = []struct{ code, meaning string }{
	{"LOADING", "the server is still loading its data"},
	{"READONLY", "the server is a replica; after a failover this ends when the client has found the new master"},
	{"ERR WAIT cannot be used with replica", "the server has become a replica"},
	{"UNBLOCKED", "the server has become a replica"},
	{"MASTERDOWN", "the replica has lost its master"},
	{"CLUSTERDOWN", "the cluster does not serve this key now"},
	{"TRYAGAIN", "the cluster is moving this key"},
	{"MOVED", "the cluster has moved this key"},
	{"ASK", "the cluster is moving this key"},
	{"NOREPLICAS", "the server has fewer replicas than its min-replicas-to-write"},
	{"MISCONF", "the server refuses to write because it cannot save its data"},
	{"BUSY", "the server is busy with a script"},
	{"ERR max number of clients", "the server has too many connections"},
}

// lasting are the replies that trying again does not change.
var lasting = []struct {
	code, meaning string
	kind          error // the error of the contract; nil if there is no such error
}{
	{"WRONGTYPE", "a key of the lock holds something else: is the name used for other data, or by the other protocol?", nil},
	{"OOM", "the server is out of memory", driver.ErrMisconfigured},
	{"ERR DB index is out of range", "there is no such database", driver.ErrMisconfigured},
	{"ERR SELECT is not allowed in cluster mode", "a cluster has no databases", driver.ErrMisconfigured},
	{"NOAUTH", "the server wants a password", driver.ErrDenied},
	{"WRONGPASS", "wrong user or password", driver.ErrDenied},
	{"ERR invalid password", "wrong user or password", driver.ErrDenied},
	{"ERR AUTH <password> called without any password configured", "the server has no password for this user", driver.ErrDenied},
	{"ERR The user executing the script can't run this command", "the user lacks a permission; dlock needs the commands of its scripts too", driver.ErrDenied},
	{"NOPERM", "the user lacks a permission; dlock needs EVAL, EVALSHA and the commands, keys and channels of its scripts", driver.ErrDenied},
}

// explain returns what an error of the client means. It is not for the end of a
// caller's context: that of a timeout is the client's.
func explain(err error) error {
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, errOneOfMany), errors.Is(err, driver.ErrClosed), errors.Is(err, ErrNotReplicated), errors.Is(err, driver.ErrUnreachable),
		errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrMisconfigured), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Redis client was closed: %w", driver.ErrClosed, err)
	}
	text := err.Error()
	for _, reply := range temporary {
		if says(text, reply.code) {
			return fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, reply.meaning, err)
		}
	}
	for _, reply := range lasting {
		switch {
		case !says(text, reply.code):
		case reply.kind == nil:
			return fmt.Errorf("%s: %w", reply.meaning, err)
		default:
			return fmt.Errorf("%w: %s: %w", reply.kind, reply.meaning, err)
		}
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
}

// says looks for a code at the beginning of a reply, or where older servers put
// what went wrong inside a script.
func says(text, code string) bool {
	return strings.HasPrefix(text, code) ||
		strings.HasPrefix(text, "ERR") && (strings.Contains(text, ": "+code) || strings.Contains(text, "-"+code))
}
