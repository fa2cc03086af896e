package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// errReply: the server, or a proxy before it, sent a reply that the command cannot have.
var errReply = errors.New("unexpected reply")

// replies are the errors of servers that have a meaning for locks.
var replies = []struct {
	code, meaning string
	kind          error // of package driver
}{
	{"LOADING", "the server is still loading its data", driver.ErrUnreachable},
	{"READONLY", "the server is a replica; after a failover this ends when the client has found the new master", driver.ErrUnreachable},
	{"ERR WAIT cannot be used with replica", "the server has become a replica", driver.ErrUnreachable},
	{"UNBLOCKED", "the server has become a replica", driver.ErrUnreachable},
	{"MASTERDOWN", "the replica has lost its master", driver.ErrUnreachable},
	{"CLUSTERDOWN", "the cluster does not serve this key now", driver.ErrUnreachable},
	{"TRYAGAIN", "the cluster is moving this key", driver.ErrUnreachable},
	{"ERR Script attempted to access a non local key", "the cluster is moving a key beside this one", driver.ErrUnreachable},
	{"Script attempted to access a non local key", "the cluster is moving a key beside this one", driver.ErrUnreachable}, // before Redis 7
	{"MOVED", "the cluster has moved this key", driver.ErrUnreachable},
	{"ASK", "the cluster is moving this key", driver.ErrUnreachable},
	{"NOREPLICAS", "the server has fewer replicas than its min-replicas-to-write", driver.ErrUnreachable},
	{"MISCONF", "the server refuses to write because it cannot save its data", driver.ErrUnreachable},
	{"BUSY", "the server is busy with a script", driver.ErrUnreachable},
	{"ERR max number of clients", "the server has too many connections", driver.ErrUnreachable},
	{"WRONGTYPE", "a key of the lock holds something else: is the name used for other data, or by the other protocol?", driver.ErrMisconfigured},
	{"ERR This instance has cluster support disabled", "the server is not in cluster mode: use redis.NewClient, or redis:// in a URL", driver.ErrMisconfigured},
	{"ERR unknown command 'sentinel'", "the server is not a Sentinel", driver.ErrMisconfigured},
	{"ERR unknown command `sentinel`", "the server is not a Sentinel", driver.ErrMisconfigured}, // before Redis 7
	{"redis: nil", "Sentinel knows no master of that name", driver.ErrMisconfigured},
	{"tls: first record does not look like a TLS handshake", "the server answers without TLS", driver.ErrMisconfigured},
	{"redis: can't parse map reply", "the server does not answer as Redis does", driver.ErrMisconfigured},
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

// explain translates an error of the client into one of package driver.
func explain(err error) error {
	switch {
	case err == nil || isNil(err):
		return nil
	case errors.Is(err, errWrongServer), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnreachable),
		errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrMisconfigured), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Redis client was closed: %w", driver.ErrClosed, err)
	}
	for _, reply := range replies {
		if hasCode(err, reply.code) {
			return fmt.Errorf("%w: %s: %w", reply.kind, reply.meaning, err)
		}
	}
	if !unanswered(err) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
}

// anyIn reports whether an error, or one that it wraps, fulfils is. What the server said may be deep
// inside: go-redis wraps errors of the login, and hooks of the program's client may wrap all.
func anyIn(err error, is func(error) bool) bool {
	if err != nil && is(err) {
		return true
	}
	switch wrapper := err.(type) { //nolint:errorlint // as errors.Is does
	case interface{ Unwrap() error }:
		return anyIn(wrapper.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wrapper.Unwrap(), func(err error) bool { return anyIn(err, is) })
	}
	return false
}

// isNil reports whether the reply to a command was nil. Sentinel's client wraps the nil of a Sentinel
// that knows no master.
func isNil(err error) bool {
	return errors.Is(err, redis.Nil) && !begins(err, "redis: all sentinels")
}

// hasCode reports whether an error has an error code: at its beginning, or inside the error of a script
// on a server before Redis 7.
func hasCode(err error, code string) bool {
	return anyIn(err, func(err error) bool {
		text := err.Error()
		return strings.HasPrefix(text, code) ||
			strings.HasPrefix(text, "ERR") && (strings.Contains(text, ": "+code) || strings.Contains(text, "-"+code))
	})
}

func begins(err error, codes ...string) bool {
	return anyIn(err, func(err error) bool {
		return slices.ContainsFunc(codes, func(code string) bool { return strings.HasPrefix(err.Error(), code) })
	})
}

// A server that answers with one of these errors did nothing: it named another server, does not
// know the script, found keys of several hash slots, or does not allow or know the command.
func isRedirect(err error) bool      { return begins(err, "MOVED ", "ASK ") }
func isUnknownScript(err error) bool { return begins(err, "NOSCRIPT") }
func isCrossSlot(err error) bool {
	return anyIn(err, func(err error) bool { return strings.Contains(err.Error(), "CROSSSLOT") })
}
func isRefusal(err error) bool {
	return !unanswered(err) && begins(err, "NOPERM", "ERR unknown command")
}

// noLongerMaster reports whether a server answers that it cannot write the key, and does not name the
// server that can.
func noLongerMaster(err error) bool {
	return err != nil && !unanswered(err) &&
		slices.ContainsFunc([]string{"READONLY", "MASTERDOWN", "CLUSTERDOWN"}, func(code string) bool { return hasCode(err, code) })
}

// unanswered reports whether an error is not a reply of the server. Then the command may still be
// carried out (mayBeCarriedOut), unless it was neverSent.
func unanswered(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return err != nil && !reply
}

// neverSent reports whether the client failed, or was replaced, before it had a connection, or
// whether the caller left before its call was sent.
func neverSent(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	call, abandoned := errors.AsType[*abandonedError](err)
	return ok && network.Op == "dial" || abandoned && call.notSent ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) || errors.Is(err, errReplaced)
}

// explainFor also names the keys of the command if one of them holds something else.
func explainFor(keys []string, err error) error {
	explained := explain(err)
	if explained != nil && hasCode(err, "WRONGTYPE") {
		return fmt.Errorf("%w (keys %q)", explained, keys)
	}
	return explained
}

// noAnswer adds ErrUnreachable to the error of a call that its caller has abandoned.
func noAnswer(err error) error {
	if _, abandoned := errors.AsType[*abandonedError](err); abandoned {
		return fmt.Errorf("%w: the server gave no answer: %w", driver.ErrUnreachable, err)
	}
	return err
}
