package servers

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Pair is a database with an asynchronous replica: what the primary has
// acknowledged may not have reached the replica yet. The replica can be read. It
// takes over only when Promote is called.
type Pair struct {
	Primary, Replica *Server

	promote func(ctx context.Context) error
	// position returns the position of the primary. reached waits until the
	// replica has reached a position.
	position func(ctx context.Context) (string, error)
	reached  func(ctx context.Context, position string) error
}

// PairOptions are the options of a Pair. The zero value is valid.
type PairOptions struct {
	// Args are additional arguments of both servers.
	Args []string

	// ReplicaOf maps the address of the primary to the address that the replica
	// connects to instead: that of a proxy, which the test can cut.
	ReplicaOf func(primaryAddr string) string
}

// RunMariaDBPair starts a Pair of MariaDB servers for a test, and stops it when
// the test ends.
func RunMariaDBPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return runPair(t, startMariaDBPair, opts)
}

// RunPostgresPair starts a Pair of PostgreSQL servers for a test, and stops it
// when the test ends.
func RunPostgresPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return runPair(t, startPostgresPair, opts)
}

// StartPostgresPair starts a Pair of PostgreSQL servers.
func StartPostgresPair(opts PairOptions) (*Pair, error) {
	p := new(Pair)
	err := startPostgresPair(p, opts)
	if err == nil {
		err = p.waitReady(context.Background())
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func runPair(t testing.TB, start func(p *Pair, opts PairOptions) error, opts PairOptions) *Pair {
	t.Helper()
	p := new(Pair)
	err := start(p, opts)
	p.all().stopAfter(t)
	if err == nil {
		err = p.waitReady(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// waitReady waits until the replica has all data.
func (p *Pair) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return p.WaitCaughtUp(ctx)
}

// Promote makes the replica a primary for good. It needs no primary, and does not
// wait for data that has not arrived yet.
func (p *Pair) Promote(ctx context.Context) error {
	if err := p.promote(ctx); err != nil {
		return fmt.Errorf("promoting the replica: %w", err)
	}
	return nil
}

// WaitCaughtUp waits until the replica has all data that the primary has now.
func (p *Pair) WaitCaughtUp(ctx context.Context) error {
	position, err := p.position(ctx)
	if err == nil {
		err = p.reached(ctx, position)
	}
	if err != nil {
		return fmt.Errorf("waiting for the replica: %w", err)
	}
	return nil
}

// Stop stops both servers.
func (p *Pair) Stop() error { return p.all().Stop() }

// all returns the servers that were started.
func (p *Pair) all() Group {
	var all Group
	for _, s := range []*Server{p.Primary, p.Replica} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// start starts the primary, and then the replica with a Kind for the primary's
// address.
func (p *Pair) start(primary *Kind, replica func(primaryAddr string) *Kind, opts PairOptions) (primaryAddr string, err error) {
	if p.Primary, err = Start(primary, opts.Args...); err != nil {
		return "", err
	}
	primaryAddr = p.Primary.Addr()
	if opts.ReplicaOf != nil {
		primaryAddr = opts.ReplicaOf(primaryAddr)
	}
	p.Replica, err = Start(replica(primaryAddr), opts.Args...)
	return primaryAddr, err
}

// errBehind reports that the replica has not reached the position yet.
var errBehind = errors.New("the replica is behind")
