// Package master is how package redlock gets at what it alone needs of package redislock.
package master

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TokenStep is how many tokens a grant of a Redlock has. It is longer than that of one server: a grant
// takes several times as long, so that callers that hand it over need more tokens, and its clock gains less.
const TokenStep = 256

// Store keeps locks in one Redis server, in the plain protocol. Its methods are those of a driver.Store,
// except that attempts have a floor, and that tokens can be raised.
type Store interface {
	driver.Watcher
	driver.Lister
	driver.Finder
	driver.Breaker
	driver.Diagnoser

	// Acquire returns the first token of the grant, which is at least floor.
	Acquire(ctx context.Context, req driver.Request, floor uint64) (token uint64, err error)
	Renew(ctx context.Context, grants []driver.Grant) []error
	Release(ctx context.Context, grant driver.Grant) error

	// RaiseToken sets the first token of a lock that grant.Owner holds to token, and makes every later grant's
	// tokens larger than all of the lock's, in one atomic step. A token that is already larger stays, unless
	// it is grant.Token: then it is lowered, and later grants' tokens are larger than both. RaiseToken does
	// not change the TTL. It returns the token that the lock has then. driver.ErrNotHeld means that the owner
	// does not hold the lock, and that nothing was changed.
	RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (uint64, error)

	// Identify returns a text that is never empty, the same on every connection, and different for
	// different servers. It changes when the server restarts.
	Identify(ctx context.Context) (string, error)

	// Clock estimates the server's clock in microseconds, and is never ahead of it. Zero is unknown.
	Clock() uint64

	Close() error
}

// New and Open make a Store over a client of the caller's, and over one of its own for a URL. Package
// redislock sets them.
var (
	New  func(client *redis.Client) (Store, error)
	Open func(url string) (Store, error)
)

// Provide sets New and Open. Its result lets a variable's declaration call it.
func Provide(over func(*redis.Client) (Store, error), open func(string) (Store, error)) bool {
	New, Open = over, open
	return true
}
