package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Acquire makes one attempt, mostly in one round trip. A second one is needed if a plain lock is
// held, if shared holders have the lock, or if a plain counter is new or ahead of the proposed tokens.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return s.acquire(ctx, req, 0)
}

// acquire is Acquire. In the plain protocol the tokens are at least floor.
func (s *Store) acquire(ctx context.Context, req driver.Request, floor uint64) (driver.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Grant{}, err
	}
	if err := checkFloor(floor); err != nil {
		return driver.Grant{}, err
	}
	if s.protocol == Plain && (req.Fair || req.Mode != (driver.Mode{})) {
		return driver.Grant{}, fmt.Errorf("%w: the plain protocol has no fair locks, no shared locks and no permits", driver.ErrUnsupported)
	}
	key, holder := s.keyOf(req.Name), req.Holder.Encode()
	var token uint64
	var err error
	now, unconfirmed := s.clock.now(), s.unconfirmed.of(req.Owner)
	switch {
	case req.Fair || req.Mode != (driver.Mode{}) || s.writerPlaces.of(req.Owner) != 0:
		token, err = s.acquireAnyMode(ctx, key, &req, holder)
	case now == 0 || unconfirmed != 0 || s.clustered.Load(): // a cluster has several clocks
		token, err = s.acquireByClock(ctx, key, &req, holder, floor, unconfirmed)
	case s.protocol == Plain:
		token, err = s.acquirePlain(ctx, key, &req, holder, cmp.Or(floor, uint64(now)))
	default:
		token, err = s.acquireByEstimate(ctx, key, &req, holder, uint64(now))
	}
	if err != nil {
		return driver.Grant{}, s.settleFailure(err, req)
	}
	if unconfirmed != 0 {
		s.unconfirmed.remove(req.Owner)
	}
	s.drawn.note(key, token)
	s.writerPlaces.remove(req.Owner)
	return s.newGrant(&req, token, holder), nil
}

// handle is what a grant carries for its release.
type handle struct {
	holder string // encoded
	exact  bool   // neither shared nor fair: the owner has nothing but the lock, which releaseExact releases
}

func (s *Store) newGrant(req *driver.Request, lastToken uint64, holder string) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: lastToken - s.step + 1, TTL: req.TTL,
		Handle: handle{holder, !req.Fair && req.Mode == driver.Mode{}}}
}

// settleFailure returns err, the error of an attempt. If the server may still carry out the
// attempt, it records the owners in s.attempts: their Release waits until the attempt has ended,
// and the log undoes what the server does after that. An attempt without a connection leaves
// nothing to undo. A lock that too few replicas acknowledged is left to its owner, which may try
// again: a release that the server carries out late would end the owner's next grant.
func (s *Store) settleFailure(err error, reqs ...driver.Request) error {
	mayHold := func(req driver.Request) bool { return s.unconfirmed.of(req.Owner) != 0 }
	if neverSent(err) && !slices.ContainsFunc(reqs, mayHold) {
		return driver.NotSent(err)
	}
	call, abandoned := errors.AsType[*abandonedError](err)
	unsettled := !neverSent(err) && !haveResults(err) && (abandoned || errors.Is(err, driver.ErrUnreachable) && unanswered(err))
	for _, req := range reqs {
		switch {
		case unsettled && abandoned:
			call.whenEnded(s.attempts.Leave(req.Name, req.Owner))
		case unsettled:
			s.attempts.Unanswered(req.Name, req.Owner)
		}
	}
	return err
}

// acquireByEstimate is for Redisson's protocol. The estimated clock is the token's lower bound.
func (s *Store) acquireByEstimate(ctx context.Context, key string, req *driver.Request, holder string, floor uint64) (uint64, error) {
	reply, err := s.ackedRoute.eval(ctx, s.scripts.acquireByEstimate, []string{key, s.counterOf(key)},
		millis(req.TTL), req.Owner.Hex(), s.drawn.propose(key, floor), holder)
	if reply == nil && haveResults(err) { // shared holders have the lock
		return s.acquireAnyMode(ctx, key, req, holder)
	}
	return s.readToken(req, reply, time.Time{}, err)
}

// acquireByClock lets the server read its clock. An unconfirmed token is replaced.
func (s *Store) acquireByClock(ctx context.Context, key string, req *driver.Request, holder string, floor, unconfirmed uint64) (uint64, error) {
	sent := time.Now()
	keys := append([]string{key, s.counterOf(key)}, s.guardOf(key)...)
	reply, err := s.ackedRoute.eval(ctx, s.scripts.acquireByClock, keys,
		floor, unconfirmed, millis(req.TTL), req.Owner.Hex(), holder)
	token, err := s.readToken(req, reply, sent, err)
	if held, refused := errors.AsType[*driver.HeldError](err); refused && held.Mode.Shared {
		return s.acquireAnyMode(ctx, key, req, holder)
	}
	return token, err
}

// acquireAnyMode is for Redisson's protocol. It keeps a place for requests that queue.
func (s *Store) acquireAnyMode(ctx context.Context, key string, req *driver.Request, holder string) (uint64, error) {
	sent := time.Now()
	keys := append([]string{key, s.counterOf(key)}, s.queueOf(key)...)
	reply, err := s.ackedRoute.eval(ctx, s.scripts.acquireAnyMode, keys,
		millis(req.TTL), req.Owner.Hex(), holder,
		modeText(req.Mode), req.Fair, req.Queue, placeOf(req), s.channelOf(key), millis(driver.PlaceTTL(req.TTL)))
	token, err := s.readToken(req, reply, sent, err)
	if err != nil && req.Queue && !req.Fair && req.Mode == (driver.Mode{}) && mayHavePlace(err) {
		s.writerPlaces.add(req.Owner, 1, req.TTL)
	}
	return token, err
}

// mayHavePlace reports, by the error of an exclusive attempt that is not fair, whether the owner
// may have a place in writers: shared holders refused it, or the outcome is unknown.
func mayHavePlace(err error) bool {
	if held, refused := errors.AsType[*driver.HeldError](err); refused {
		return held.Mode.Shared
	}
	return !driver.Unchanged(err) && !neverSent(err)
}

// readToken reads the reply to an attempt: a token, {clock, token}, or a refusal. Beside a reply
// err can only be ErrNotReplicated, which does not matter if the lock is held.
func (s *Store) readToken(req *driver.Request, reply any, sent time.Time, err error) (uint64, error) {
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
		return 0, s.heldBy(req, reply)
	case err != nil:
		return 0, err
	}
	return parseToken(text)
}

var multi, exec = []any{"multi"}, []any{"exec"}

// acquirePlain uses a transaction, which the server runs faster than a script. It proposes tokens
// together with the lock. They are valid if the last of them raised a counter that existed: ZADD
// CH returns 1 then. It returns 2 for a new counter, because it also adds the member "new", and 0
// if the counter was ahead. In both cases acquireByClock draws other tokens.
//
// The last token tells for all only if the counter is the last token of a step as long, or longer. With the
// longer step of a Redlock the first one tells, because others may use the server with the shorter one.
func (s *Store) acquirePlain(ctx context.Context, key string, req *driver.Request, holder string, floor uint64) (uint64, error) {
	proposed, counter := s.drawn.propose(key, floor), s.counterOf(key)
	value := grantPrefix(req.Owner, proposed) + holder
	told := proposed
	if s.step > tokenStep {
		told = proposed - s.step + 1
	}
	t := append(make([]redis.Cmder, 0, 5),
		noRetryCmd{redis.NewCmd(ctx, multi...)},
		noRetryCmd{redis.NewCmd(ctx, "zadd", counter, "GT", "CH", told, "t", 1, "new")},
		noRetryCmd{redis.NewCmd(ctx, "set", key, value, "NX", "PX", millis(req.TTL))})
	if told != proposed {
		t = append(t, noRetryCmd{redis.NewCmd(ctx, "zadd", counter, "GT", proposed, "t")})
	}
	t = append(t, noRetryCmd{redis.NewCmd(ctx, exec...)})
	err := s.ackedRoute.viaClient.do(ctx, t...)
	if !haveResults(err) {
		if !neverSent(err) {
			s.unconfirmed.add(req.Owner, proposed, req.TTL)
		}
		return 0, err
	}
	raised, granted, failed := transaction(t)
	switch {
	case failed == nil && !granted: // the script says which owner holds the lock
		return s.acquireByClock(ctx, key, req, holder, floor, 0)
	case raised && granted:
		return proposed, err
	case neverSent(failed):
		return 0, explain(failed)
	}
	// The transaction failed, or the counter was ahead of the clock.
	s.unconfirmed.add(req.Owner, proposed, req.TTL)
	if failed == nil || noLongerMaster(failed) { // go-redis leaves such a server after a command alone
		return s.acquireByClock(ctx, key, req, holder, floor, proposed)
	}
	if granted {
		_ = s.undo(context.WithoutCancel(ctx), req.Name, req.Owner) // otherwise it expires
	}
	return 0, explainFor([]string{key, counter}, failed)
}

// transaction reports whether the tokens raised a counter that existed, and the lock was granted.
func transaction(t []redis.Cmder) (raised, granted bool, err error) {
	for _, cmd := range t {
		if err := cmd.Err(); err != nil {
			return false, false, err
		}
	}
	reply := t[len(t)-1].(noRetryCmd).Val()
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

// heldBy reads {holder value, remaining, position, mode, java_rw, queued}. The last three may be missing.
func (s *Store) heldBy(req *driver.Request, reply any) error {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return fmt.Errorf("%w: %v", errReply, reply)
	}
	value, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	held := &driver.HeldError{Name: req.Name, Remaining: remaining(left)}
	held.Token, held.Holder = s.parseHolderValue(value)
	held.Silent = s.protocol == Plain && held.Token == 0
	if len(fields) > 3 {
		mode, _ := fields[3].(string)
		if held.Mode = parseMode(mode); mode != "" && held.Mode.Limit != req.Mode.Limit {
			return &driver.ModeError{Name: req.Name, Mode: held.Mode}
		}
	}
	if len(fields) > 4 && fields[4] == int64(1) {
		s.watches.noteJavaRW(req.Name)
	}
	held.Queued = !req.Fair && len(fields) > 5 && fields[5] == int64(1)
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
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	keys := make([]string, 0, 2*len(reqs)+1)
	args := append(make([]any, 0, 2+3*len(reqs)), 0, 0) // no floor but the clock, no unconfirmed token
	clustered, tag := s.clustered.Load(), hashTag(s.keyOf(reqs[0].Name))
	for _, req := range reqs {
		key := s.keyOf(req.Name)
		if req.Mode != (driver.Mode{}) {
			return nil, fmt.Errorf("%w: several names at once in mode %v", driver.ErrUnsupported, req.Mode)
		}
		if clustered && hashTag(key) != tag {
			return nil, fmt.Errorf("%w: %q and %q do not share a hash tag of the cluster", driver.ErrUnsupported, reqs[0].Name, req.Name)
		}
		keys = append(keys, key, s.counterOf(key))
		args = append(args, millis(req.TTL), req.Owner.Hex(), req.Holder.Encode())
	}
	keys = append(keys, s.guardOf(keys[0])...)
	sent := time.Now()
	reply, err := s.ackedRoute.eval(ctx, s.scripts.acquireByClock, keys, args...)
	if s.foundCluster(clustered, err) {
		return s.AcquireAll(ctx, reqs)
	}
	if reply != nil {
		grants, refused := s.grantAll(reqs, reply, sent)
		if refused != nil || err == nil {
			return grants, refused
		}
	}
	return nil, s.settleFailure(cmp.Or(err, errReply), reqs...)
}

// grantAll reads {clock, token, token, ...}, or the reply that a lock is held.
func (s *Store) grantAll(reqs []driver.Request, reply any, sent time.Time) ([]driver.Grant, error) {
	fields, _ := reply.([]any)
	if len(fields) >= 3 {
		if position, held := fields[2].(int64); held {
			return nil, s.heldBy(&reqs[position-1], reply)
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
		grants[i] = s.newGrant(&reqs[i], token, reqs[i].Holder.Encode())
	}
	return grants, nil
}
