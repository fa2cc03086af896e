package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Acquire makes one attempt, in one round trip: also for a plain lock, unless it
// is held.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	if req.Floor > maxToken {
		return driver.Grant{}, fmt.Errorf("a token of %d or more cannot be counted", req.Floor)
	}
	key, holder := s.keyOf(req.Name), s.holders.encode(req.Holder)
	var token uint64
	var err error
	now, doubtful := s.clock.now(), s.doubts.token(req.Owner)
	switch {
	case req.Fair:
		token, err = s.acquireFair(ctx, key, &req, holder)
	case now == 0 || doubtful != 0 || s.cluster.Load(): // whose servers have clocks of their own
		token, err = s.acquireByClock(ctx, key, &req, holder, doubtful)
	case s.protocol == Plain:
		token, err = s.acquirePlain(ctx, key, &req, holder, uint64(now))
	default:
		token, err = s.acquireLean(ctx, key, &req, holder, uint64(now))
	}
	if err != nil {
		s.unsettled(err, req)
		return driver.Grant{}, s.notGranted(ctx, &req, err)
	}
	if doubtful != 0 {
		s.doubts.clear(req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL, Handle: handle{holder, req.Fair}}, nil
}

// maxToken is the largest number that a script can count to.
const maxToken = 1 << 53

// handle is what a grant carries for its release.
type handle struct {
	holder *holderText
	fair   bool
}

// acquireLean is for Redisson's protocol when the server's clock is known well
// enough.
func (s *Store) acquireLean(ctx context.Context, key string, req *driver.Request, holder *holderText, floor uint64) (uint64, error) {
	reply, err := s.eval(ctx, s.scripts.acquireLean, []string{key, s.counterOf(key)},
		millis(req.TTL), req.Owner.Hex(), max(floor, req.Floor), holder.text)
	if reply == nil {
		return 0, err
	}
	text, granted := reply.(string)
	if !granted {
		return 0, s.heldBy(req.Name, reply)
	}
	if err != nil {
		return 0, err
	}
	return parseToken(text)
}

// acquireByClock lets the server look at its clock, and remembers it. A token that
// is in doubt is replaced.
func (s *Store) acquireByClock(ctx context.Context, key string, req *driver.Request, holder *holderText, doubtful uint64) (uint64, error) {
	sent := time.Now()
	reply, err := s.eval(ctx, s.scripts.acquire, []string{key, s.counterOf(key)},
		req.Floor, doubtful, millis(req.TTL), req.Owner.Hex(), holder.text)
	return s.tokenByClock(req.Name, reply, sent, err)
}

func (s *Store) acquireFair(ctx context.Context, key string, req *driver.Request, holder *holderText) (uint64, error) {
	queues := 0
	if req.Queue {
		queues = 1
	}
	sent := time.Now()
	keys := append([]string{key, s.counterOf(key)}, s.queueOf(key)...)
	reply, err := s.eval(ctx, s.scripts.acquireFair, keys,
		millis(req.TTL), req.Owner.Hex(), req.Floor, holder.text, queues, s.channelOf(key))
	return s.tokenByClock(req.Name, reply, sent, err)
}

// tokenByClock reads {clock, token}, or who has the lock. The error of the call
// counts if it was granted.
func (s *Store) tokenByClock(name string, reply any, sent time.Time, err error) (uint64, error) {
	if reply == nil {
		return 0, err
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return 0, s.heldBy(name, reply)
	}
	s.clock.read(fields[0], sent)
	if err != nil {
		return 0, err
	}
	token, _ := fields[1].(string)
	return parseToken(token)
}

// What a transaction consists of, beside what it does.
var (
	multi = []any{"multi"}
	exec  = []any{"exec"}
)

// acquirePlain does without a script, which the server runs faster: the token is
// proposed with the lock, and is good if it raised the counter. Where there was no
// counter, or it was lost, only the server's clock knows what came before: that is
// what the second member tells, which is added with the first and never changes.
func (s *Store) acquirePlain(ctx context.Context, key string, req *driver.Request, holder *holderText, now uint64) (uint64, error) {
	proposed, counter := max(now, req.Floor), s.counterOf(key)
	mark := markPrefix(req.Owner, proposed) + holder.text
	t := [...]redis.Cmder{
		command{redis.NewCmd(ctx, multi...)},
		command{redis.NewCmd(ctx, "zadd", counter, "GT", "CH", proposed, "t", 1, "new")},
		command{redis.NewCmd(ctx, "set", key, mark, "NX", "PX", millis(req.TTL))},
		command{redis.NewCmd(ctx, exec...)},
	}
	err := s.acked.all.do(ctx, t[:]...) // in a cluster it is a script
	if !returned(err) {
		s.doubts.add(req.Owner, proposed, req.TTL)
		return 0, err
	}
	raised, granted, failed := transaction(t[:])
	switch {
	case failed == nil && !granted: // the script knows who has it, and whether it is this owner
		return s.acquireByClock(ctx, key, req, holder, 0)
	case raised && granted:
		return proposed, err
	}
	// It failed, or the counter was ahead of the clock. Until another token is
	// drawn, this owner must not be told the one in its mark.
	s.doubts.add(req.Owner, proposed, req.TTL)
	if failed == nil {
		return s.acquireByClock(ctx, key, req, holder, proposed)
	}
	if granted {
		_ = s.release(context.WithoutCancel(ctx), driver.Grant{Name: req.Name, Owner: req.Owner}) // else it expires
	}
	return 0, explain(failed)
}

// transaction reads what MULTI, ZADD, SET, EXEC returned: whether the proposed token
// raised a counter that was there, and whether the lock was granted.
func transaction(t []redis.Cmder) (raised, granted bool, err error) {
	for _, cmd := range t {
		if err := cmd.Err(); err != nil {
			return false, false, err
		}
	}
	reply := t[len(t)-1].(command).Val()
	replies, _ := reply.([]any)
	if len(replies) != 2 {
		return false, false, fmt.Errorf("%w: %v in reply to EXEC", errReply, reply)
	}
	for _, reply := range replies {
		if failed, ok := reply.(error); ok {
			err = failed
		}
	}
	return replies[0] == int64(1), replies[1] == "OK", err
}

// notGranted gives back what replicas did not acknowledge.
func (s *Store) notGranted(ctx context.Context, req *driver.Request, err error) error {
	if !errors.Is(err, ErrNotReplicated) {
		return err
	}
	back := s.release(context.WithoutCancel(ctx), driver.Grant{Name: req.Name, Owner: req.Owner})
	if back != nil && !errors.Is(back, driver.ErrNotHeld) {
		return fmt.Errorf("%w; it could not be given back, and expires in %v: %w", err, req.TTL, back)
	}
	return err
}

// errReply: the server, or something in between, answered what no script returns.
var errReply = errors.New("unexpected reply")

func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, fmt.Errorf("%w: %q is not a token", errReply, text)
	}
	return token, nil
}

// heldBy reads {mark, remaining, ...}.
func (s *Store) heldBy(name string, reply any) error {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return fmt.Errorf("%w: %v", errReply, reply)
	}
	mark, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	held := &driver.HeldError{Name: name, Remaining: remaining(left)}
	held.Token, held.Holder = s.parse(mark)
	held.Silent = s.protocol == Plain && held.Token == 0
	return held
}

// parse takes a mark apart. In the plain protocol another program's mark is its
// secret.
func (s *Store) parse(mark string) (uint64, driver.Holder) {
	token, holder := parseMark(mark)
	if token == 0 && s.protocol == Plain {
		return 0, driver.Holder{}
	}
	return token, holder
}

// remaining reads a reply of PTTL. Zero is for a lock that does not expire, or of
// which it is not known.
func remaining(millis int64) time.Duration {
	if millis < 0 {
		return 0
	}
	return max(time.Duration(millis)*time.Millisecond, time.Millisecond)
}
