package redlock

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// fakeServer is a server in memory, with the tokens of a Redis server: a counter for each name.
type fakeServer struct {
	locks *memlock.Store
	clock func() uint64 // nil if tokens do not depend on a clock

	mu    sync.Mutex
	last  map[string]uint64       // the last token of each name that was drawn
	first map[uint64]uint64       // the first token of a grant, by its token in locks
	token map[driver.Owner]uint64 // in locks
}

func newFakeServer() *fakeServer {
	return &fakeServer{locks: memlock.New(), last: make(map[string]uint64), first: make(map[uint64]uint64), token: make(map[driver.Owner]uint64)}
}

func (s *fakeServer) acquire(ctx context.Context, req driver.Request, floor uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant, err := s.locks.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Token = s.first[held.Token]
	}
	if err != nil {
		return 0, err
	}
	if s.first[grant.Token] == 0 {
		if s.clock != nil && (floor == 0 || s.last[req.Name] == 0) {
			floor = max(floor, s.clock())
		}
		s.token[req.Owner] = grant.Token
		s.first[grant.Token] = max(s.last[req.Name]+1, floor)
		s.last[req.Name] = s.first[grant.Token] + master.TokenStep - 1
	}
	return s.first[grant.Token], nil
}

func (s *fakeServer) raiseToken(ctx context.Context, grant driver.Grant, token uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant.TTL = 0
	if errs := s.locks.Renew(ctx, []driver.Grant{grant}); errs != nil {
		return 0, errs[0]
	}
	at := s.token[grant.Owner]
	if has := s.first[at]; has < token || has == grant.Token {
		s.first[at] = token
	}
	s.last[grant.Name] = max(s.last[grant.Name], lastToken(s.first[at]))
	return s.first[at], nil
}

// breakLock breaks a lock by one of its tokens.
func (s *fakeServer) breakLock(ctx context.Context, name string, token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for info := range s.locks.List(ctx, name) {
		if first := s.first[info.Token]; info.Name == name && first <= token && token <= lastToken(first) {
			return s.locks.Break(ctx, name, info.Token)
		}
	}
	return driver.ErrNotHeld
}

func (s *fakeServer) list(ctx context.Context, prefix string) (all []driver.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for info := range s.locks.List(ctx, prefix) {
		info.Token = s.first[info.Token]
		all = append(all, info)
	}
	return all
}

func lastToken(first uint64) uint64 { return first + master.TokenStep - 1 }
