package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// RaiseToken implements driver.TokenRaiser.
func (s *Store) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	key := s.keyOf(grant.Name)
	reply, err := s.eval(ctx, s.scripts.raise, []string{key, s.counterOf(key)},
		ownerPrefix(grant.Owner), grant.Owner.Hex(), token)
	if err != nil {
		return driver.Grant{}, err
	}
	text, held := reply.(string)
	if !held {
		return driver.Grant{}, fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	grant.Token, err = parseToken(text)
	return grant, err
}

// Identify implements driver.Identifier: a server has a random name for itself,
// for as long as it runs.
func (s *Store) Identify(ctx context.Context) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if s.cluster.Load() {
		return s.identifyCluster(ctx)
	}
	cmd := command{redis.NewCmd(ctx, "info", "server")}
	if err := askOne(ctx, s.route.all, cmd); err != nil {
		return "", err
	}
	text, _ := cmd.Val().(string)
	id := parseInfo(text)["run_id"]
	if strings.Trim(id, "0") == "" {
		return "", fmt.Errorf("%w: the server does not tell its run_id", driver.ErrUnsupported)
	}
	return id, nil
}

// identifyCluster returns the first, in alphabetical order, of the names that
// the servers of a cluster have for ever.
func (s *Store) identifyCluster(ctx context.Context) (string, error) {
	cmd := command{redis.NewCmd(ctx, "cluster", "nodes")}
	if err := askOne(ctx, s.route.all, cmd); err != nil {
		return "", err
	}
	nodes, _ := cmd.Val().(string)
	first := ""
	for line := range strings.Lines(nodes) {
		id, _, _ := strings.Cut(line, " ")
		if first == "" || id < first {
			first = id
		}
	}
	if first == "" {
		return "", fmt.Errorf("%w: the cluster does not tell its servers", driver.ErrUnsupported)
	}
	return first, nil
}
