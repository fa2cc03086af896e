package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Acquire makes one attempt in one round trip. A plain lock that is held takes a second one.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	if err := checkFloor(req.Floor); err != nil {
		return driver.Grant{}, err
	}
	key, holder := s.keyOf(req.Name), req.Holder.Encode()
	var token uint64
	var err error
	now, unconfirmed := s.clock.now(), s.unconfirmed.of(req.Owner)
	switch {
	case req.Fair:
		token, err = s.acquireFair(ctx, key, &req, holder)
	case now == 0 || unconfirmed != 0 || s.clustered.Load(): // a cluster has several clocks
		token, err = s.acquireByClock(ctx, key, &req, holder, unconfirmed)
	case s.protocol == Plain:
		token, err = s.acquirePlain(ctx, key, &req, holder, uint64(now))
	default:
		token, err = s.acquireByEstimate(ctx, key, &req, holder, uint64(now))
	}
	if err != nil {
		if neverSent(err) && s.unconfirmed.of(req.Owner) == 0 {
			return driver.Grant{}, driver.NotSent(err)
		}
		return driver.Grant{}, s.failed(ctx, err, req)
	}
	if unconfirmed != 0 {
		s.unconfirmed.remove(req.Owner)
	}
	return granted(&req, token, spanOf(&req), holder), nil
}

// handle is what a grant carries for its release.
type handle struct {
	holder string // encoded
	fair   bool
}

// granted returns the grant whose last token is token.
func granted(req *driver.Request, token, span uint64, holder string) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token - span + 1, Span: span, TTL: req.TTL, Handle: handle{holder, req.Fair}}
}

// failed ends an attempt that was not granted. It releases what too few replicas acknowledged. If
// the server may still carry the attempt out, the Release of each owner waits until the attempt has
// ended, and what the server carries out after that is undone.
func (s *Store) failed(ctx context.Context, err error, reqs ...driver.Request) error {
	late, left := errors.AsType[*leftError](err)
	unsettled := left && !late.unsent ||
		!left && errors.Is(err, driver.ErrUnreachable) && unanswered(err) && !neverSent(err)
	for _, req := range reqs {
		switch {
		case errors.Is(err, ErrNotReplicated):
			back := s.undo(context.WithoutCancel(ctx), req.Name, req.Owner)
			if back != nil && !errors.Is(back, driver.ErrNotHeld) {
				err = fmt.Errorf("%w; it could not be released, and expires in %v: %w", err, req.TTL, back)
			}
		case unsettled && left:
			late.whenEnded(s.attempts.Leave(req.Name, req.Owner))
		case unsettled:
			s.attempts.Unanswered(req.Name, req.Owner)
		}
	}
	return err
}

// acquireByEstimate is for Redisson's protocol. The estimated clock is the token's lower bound.
func (s *Store) acquireByEstimate(ctx context.Context, key string, req *driver.Request, holder string, floor uint64) (uint64, error) {
	reply, err := s.acked.eval(ctx, s.scripts.acquireByEstimate, []string{key, s.counterOf(key)},
		millis(req.TTL), req.Owner.Hex(), max(floor, req.Floor)+spanOf(req)-1, holder, spanOf(req))
	return s.readToken(req.Name, reply, time.Time{}, err)
}

// acquireByClock lets the server read its clock. An unconfirmed token is replaced.
func (s *Store) acquireByClock(ctx context.Context, key string, req *driver.Request, holder string, unconfirmed uint64) (uint64, error) {
	sent := time.Now()
	reply, err := s.acked.eval(ctx, s.scripts.acquire, []string{key, s.counterOf(key)},
		req.Floor, unconfirmed, spanOf(req), millis(req.TTL), req.Owner.Hex(), holder)
	return s.readToken(req.Name, reply, sent, err)
}

func (s *Store) acquireFair(ctx context.Context, key string, req *driver.Request, holder string) (uint64, error) {
	sent := time.Now()
	keys := append([]string{key, s.counterOf(key)}, s.queueOf(key)...)
	reply, err := s.acked.eval(ctx, s.scripts.acquireFair, keys,
		millis(req.TTL), req.Owner.Hex(), req.Floor, holder, req.Queue, s.channelOf(key))
	return s.readToken(req.Name, reply, sent, err)
}

// readToken reads a token, or {clock, token}. Any other reply says that the lock is held. The
// call's error counts only if the lock was granted.
func (s *Store) readToken(name string, reply any, sent time.Time, err error) (uint64, error) {
	if reply == nil {
		return 0, cmp.Or(err, errReply)
	}
	text, granted := reply.(string)
	if fields, _ := reply.([]any); len(fields) == 2 {
		if text, granted = fields[1].(string); granted {
			s.clock.read(fields[0], sent)
		}
	}
	switch {
	case !granted:
		return 0, s.heldBy(name, reply)
	case err != nil:
		return 0, err
	}
	return parseToken(text)
}

var multi, exec = []any{"multi"}, []any{"exec"}

// acquirePlain uses a transaction, which the server runs faster than a script. It proposes tokens
// together with the lock. They are good if the first one raised a counter that existed, which
// member "new" of the counter's set tells. Otherwise only the server's clock tells the last token.
func (s *Store) acquirePlain(ctx context.Context, key string, req *driver.Request, holder string, now uint64) (uint64, error) {
	first, counter := max(now, req.Floor), s.counterOf(key)
	proposed := first + spanOf(req) - 1
	value := grantPrefix(req.Owner, proposed) + holder
	t := append(make([]redis.Cmder, 0, 5),
		command{redis.NewCmd(ctx, multi...)},
		command{redis.NewCmd(ctx, "zadd", counter, "GT", "CH", first, "t", 1, "new")},
		command{redis.NewCmd(ctx, "set", key, value, "NX", "PX", millis(req.TTL))})
	if proposed > first {
		t = append(t, command{redis.NewCmd(ctx, "zadd", counter, "GT", proposed, "t")})
	}
	t = append(t, command{redis.NewCmd(ctx, exec...)})
	err := s.acked.all.do(ctx, t...)
	if !returned(err) {
		s.unconfirmed.add(req.Owner, proposed, req.TTL)
		return 0, err
	}
	raised, granted, failed := transaction(t)
	switch {
	case failed == nil && !granted: // the script says which owner holds the lock
		return s.acquireByClock(ctx, key, req, holder, 0)
	case raised && granted:
		return proposed, err
	case neverSent(failed):
		return 0, explain(failed)
	}
	// The transaction failed, or the counter was ahead of the clock.
	s.unconfirmed.add(req.Owner, proposed, req.TTL)
	if failed == nil {
		return s.acquireByClock(ctx, key, req, holder, proposed)
	}
	if granted {
		_ = s.undo(context.WithoutCancel(ctx), req.Name, req.Owner) // otherwise it expires
	}
	return 0, explainFor([]string{key, counter}, failed)
}

// transaction reports whether the token raised a counter that existed, and the lock was granted.
func transaction(t []redis.Cmder) (raised, granted bool, err error) {
	for _, cmd := range t {
		if err := cmd.Err(); err != nil {
			return false, false, err
		}
	}
	reply := t[len(t)-1].(command).Val()
	replies, _ := reply.([]any)
	if len(replies) != len(t)-2 {
		return false, false, fmt.Errorf("%w: %v to EXEC", errReply, reply)
	}
	for _, reply := range replies {
		if failed, ok := reply.(error); ok {
			err = failed
		}
	}
	return replies[0] == int64(1), replies[1] == "OK", err
}

// heldBy reads {holder value, remaining, ...}.
func (s *Store) heldBy(name string, reply any) error {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return fmt.Errorf("%w: %v", errReply, reply)
	}
	value, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	held := &driver.HeldError{Name: name, Remaining: remaining(left)}
	held.Token, held.Holder = s.parseHolderValue(value)
	held.Silent = s.protocol == Plain && held.Token == 0
	return held
}

// remaining reads a reply of PTTL. Zero is for a lock that does not expire.
func remaining(millis int64) time.Duration {
	if millis < 0 {
		return 0
	}
	return max(time.Duration(millis)*time.Millisecond, time.Millisecond)
}

// AcquireAll takes all names with one script. In a cluster the names have to share a hash tag.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	keys := make([]string, 0, 2*len(reqs))
	args := append(make([]any, 0, 3+3*len(reqs)), nil, 0, 1) // floor, no unconfirmed token, one token each
	var floor uint64
	clustered, tag := s.clustered.Load(), hashTag(s.keyOf(reqs[0].Name))
	for _, req := range reqs {
		key := s.keyOf(req.Name)
		if clustered && hashTag(key) != tag {
			return nil, fmt.Errorf("%w: %q and %q do not share a hash tag of the cluster", driver.ErrUnsupported, reqs[0].Name, req.Name)
		}
		if err := checkFloor(req.Floor); err != nil {
			return nil, err
		}
		keys = append(keys, key, s.counterOf(key))
		args = append(args, millis(req.TTL), req.Owner.Hex(), req.Holder.Encode())
		floor = max(floor, req.Floor)
	}
	args[0] = floor
	sent := time.Now()
	reply, err := s.acked.eval(ctx, s.scripts.acquire, keys, args...)
	if s.foundCluster(clustered, err) {
		return s.AcquireAll(ctx, reqs)
	}
	if reply != nil {
		grants, refused := s.grantAll(reqs, reply, sent)
		if refused != nil || err == nil {
			return grants, refused
		}
	}
	return nil, s.failed(ctx, cmp.Or(err, errReply), reqs...)
}

// grantAll reads {clock, token, token, ...}, or the reply that a lock is held.
func (s *Store) grantAll(reqs []driver.Request, reply any, sent time.Time) ([]driver.Grant, error) {
	fields, _ := reply.([]any)
	if len(fields) == 3 {
		if position, held := fields[2].(int64); held {
			return nil, s.heldBy(reqs[position-1].Name, reply)
		}
	}
	if len(fields) != 1+len(reqs) {
		return nil, fmt.Errorf("%w: %v", errReply, reply)
	}
	s.clock.read(fields[0], sent)
	grants := make([]driver.Grant, len(reqs))
	for i := range reqs {
		text, _ := fields[1+i].(string)
		token, err := parseToken(text)
		if err != nil {
			return nil, err
		}
		grants[i] = granted(&reqs[i], token, 1, reqs[i].Holder.Encode())
	}
	return grants, nil
}
