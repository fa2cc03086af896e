package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
	"github.com/redis/go-redis/v9"
)

// member is the store of one server of a Redlock.
type member struct{ *Store }

var _ = master.Provide(newMember, openMember)

func newMember(client *redis.Client) (master.Store, error) {
	s, err := newStore(client, &Options{Protocol: Plain}, master.TokenStep)
	return member{s}, err
}

func openMember(url string) (master.Store, error) {
	s, err := openStore(url, &Options{Protocol: Plain}, master.TokenStep)
	return member{s}, err
}

// Acquire implements master.Store.
func (m member) Acquire(ctx context.Context, req driver.Request, floor uint64) (uint64, error) {
	grant, err := m.acquire(ctx, req, floor)
	return grant.Token, err
}

// Clock implements master.Store.
func (m member) Clock() uint64 { return uint64(m.clock.now()) }

// RaiseToken implements master.Store.
func (m member) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (uint64, error) {
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	if err := checkFloor(token); err != nil {
		return 0, err
	}
	key := m.keyOf(grant.Name)
	reply, err := m.ackedRoute.eval(ctx, m.scripts.raise, []string{key, m.counterOf(key)},
		ownerPrefix(grant.Owner), grant.Owner.Hex(), token+m.step-1, m.lastToken(grant))
	if err != nil {
		return 0, err
	}
	text, held := reply.(string)
	if !held {
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	last, err := parseToken(text)
	return last - m.step + 1, err
}

// Identify implements master.Store. A server has a random run_id for as long as it runs.
func (m member) Identify(ctx context.Context) (string, error) {
	if err := m.begin(ctx); err != nil {
		return "", err
	}
	cmd := redis.NewStringCmd(ctx, "info", "server")
	if err := query(ctx, m.route.viaClient, cmd); err != nil {
		return "", err
	}
	id := parseInfo(cmd.Val())["run_id"]
	if strings.Trim(id, "0") == "" { // some proxies return zeros
		return "", fmt.Errorf("%w: the server does not say its run_id", driver.ErrUnsupported)
	}
	return id, nil
}
