package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// AcquireAll takes all names with one script, where they live on one server. In
// a cluster they do if they share a hash tag.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	keys := make([]string, 0, 2*len(reqs))
	args := make([]any, 2, 2+3*len(reqs))
	var floor uint64
	slots := s.cluster.Load()
	tag := hashTag(s.keyOf(reqs[0].Name))
	for _, req := range reqs {
		key := s.keyOf(req.Name)
		if slots && hashTag(key) != tag {
			return nil, fmt.Errorf("%w: %q and %q do not share a hash tag of the cluster", driver.ErrUnsupported, reqs[0].Name, req.Name)
		}
		keys = append(keys, key, s.counterOf(key))
		args = append(args, millis(req.TTL), req.Owner.Hex(), s.holders.encode(req.Holder).text)
		floor = max(floor, req.Floor)
		if req.Floor > maxToken {
			return nil, fmt.Errorf("a token of %d or more cannot be counted", req.Floor)
		}
	}
	args[0], args[1] = floor, 0
	sent := time.Now()
	reply, err := s.eval(ctx, s.scripts.acquire, keys, args...)
	if s.foundSlots(slots, err) {
		return s.AcquireAll(ctx, reqs)
	}
	if reply == nil {
		s.unsettled(err, reqs...)
		return nil, err
	}
	grants, refused := s.grantAll(reqs, reply, sent)
	if refused != nil || err == nil {
		return grants, refused
	}
	for i := range reqs {
		err = s.notGranted(ctx, &reqs[i], err)
	}
	return nil, err
}

// grantAll reads {clock, token, token, ...}, or who has one of the locks.
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
	for i, req := range reqs {
		text, _ := fields[1+i].(string)
		token, err := parseToken(text)
		if err != nil {
			return nil, err
		}
		grants[i] = driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL,
			Handle: handle{s.holders.encode(req.Holder), false}}
	}
	return grants, nil
}

// hashTag returns the part of a key that decides about its slot in a cluster.
func hashTag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}
