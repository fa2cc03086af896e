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
	key, holder := s.keyOf(req.Name), s.holders.encode(req.Holder)
	var token uint64
	var err error
	now := s.clock.now()
	switch {
	case req.Fair:
		token, err = s.acquireFair(ctx, key, &req, holder)
	case now == 0 || s.doubts(req.Owner):
		token, err = s.acquireByClock(ctx, key, &req, holder)
	case s.protocol == Plain && !s.cluster:
		token, err = s.acquirePlain(ctx, key, &req, holder, uint64(now))
	case s.protocol == Plain:
		token, err = s.acquireByClock(ctx, key, &req, holder)
	default:
		token, err = s.acquireLean(ctx, key, &req, holder, uint64(now))
	}
	if err != nil {
		return driver.Grant{}, s.notGranted(ctx, &req, err)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL, Handle: handle{holder, req.Fair}}, nil
}

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
	if err != nil {
		return 0, err
	}
	if token, ok := reply.(string); ok {
		return parseToken(token)
	}
	return 0, s.heldBy(req.Name, reply)
}

// acquireByClock lets the server look at its clock, and remembers it.
func (s *Store) acquireByClock(ctx context.Context, key string, req *driver.Request, holder *holderText) (uint64, error) {
	redraw := 0
	if s.doubts(req.Owner) {
		redraw = 1
	}
	reply, err := s.eval(ctx, s.scripts.acquire, []string{key, s.counterOf(key)},
		req.Floor, redraw, millis(req.TTL), req.Owner.Hex(), holder.text)
	if err != nil {
		return 0, err
	}
	token, err := s.tokenByClock(req.Name, reply)
	if err == nil && redraw == 1 {
		s.doubtful.Delete(req.Owner)
	}
	return token, err
}

func (s *Store) acquireFair(ctx context.Context, key string, req *driver.Request, holder *holderText) (uint64, error) {
	queues := 0
	if req.Queue {
		queues = 1
	}
	keys := append([]string{key, s.counterOf(key)}, s.queueOf(key)...)
	reply, err := s.eval(ctx, s.scripts.acquireFair, keys,
		millis(req.TTL), req.Owner.Hex(), req.Floor, holder.text, queues, s.channelOf(key))
	if err != nil {
		return 0, err
	}
	return s.tokenByClock(req.Name, reply)
}

// tokenByClock reads {clock, token}, or who has the lock.
func (s *Store) tokenByClock(name string, reply any) (uint64, error) {
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return 0, s.heldBy(name, reply)
	}
	s.clock.readText(fields[0])
	token, _ := fields[1].(string)
	return parseToken(token)
}

// acquirePlain does without a script, which the server runs faster: the token is
// proposed with the lock, and is good if it raised the counter.
func (s *Store) acquirePlain(ctx context.Context, key string, req *driver.Request, holder *holderText, now uint64) (uint64, error) {
	floor := max(now, req.Floor)
	mark := markPrefix(req.Owner, floor) + holder.text
	multi, exec := command{redis.NewCmd(ctx, "multi")}, command{redis.NewCmd(ctx, "exec")}
	raise := command{redis.NewCmd(ctx, "zadd", s.counterOf(key), "GT", "CH", floor, "t")}
	set := command{redis.NewCmd(ctx, "set", key, mark, "NX", "PX", millis(req.TTL))}
	if err := s.send(ctx, key, multi, raise, set, exec); err != nil {
		return 0, err
	}
	raised, granted, err := transaction(multi, raise, set, exec)
	switch {
	case err != nil:
		return 0, explain(err)
	case !granted: // the script knows who has it, and whether it is this owner
		return s.acquireByClock(ctx, key, req, holder)
	case raised:
		return floor, nil
	}
	// The counter was ahead of the clock. Until another token is drawn, this
	// owner must not be told the one in its mark.
	s.doubtful.Store(req.Owner, nil)
	s.anyDoubts.Store(true)
	return s.acquireByClock(ctx, key, req, holder)
}

// transaction reads what MULTI, ZADD, SET, EXEC returned.
func transaction(multi, raise, set, exec command) (raised, granted bool, err error) {
	for _, cmd := range []command{multi, raise, set, exec} {
		if err := cmd.Err(); err != nil {
			return false, false, err
		}
	}
	replies, _ := exec.Val().([]any)
	if len(replies) != 2 {
		return false, false, fmt.Errorf("%w: %v in reply to EXEC", errReply, exec.Val())
	}
	for _, reply := range replies {
		if err, failed := reply.(error); failed {
			return false, false, err
		}
	}
	return replies[0] == int64(1), replies[1] == "OK", nil
}

// doubts says whether the token in the owner's mark may be too low.
func (s *Store) doubts(o driver.Owner) bool {
	if !s.anyDoubts.Load() {
		return false
	}
	_, found := s.doubtful.Load(o)
	return found
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
var errReply = errors.New("redislock: unexpected reply")

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
