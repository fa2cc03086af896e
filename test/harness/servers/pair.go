package servers

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Pair is a database with a replica that follows it asynchronously: what the
// primary has told its clients may not have reached the replica yet. The replica
// can be read, and takes over when Promote is called; nobody else does that.
type Pair struct {
	Primary, Replica *Server

	promote func(ctx context.Context) error
	// position is how far the primary has got, and reached waits on the replica
	// until it has got there too.
	position func(ctx context.Context) (string, error)
	reached  func(ctx context.Context, position string) error
}

// PairOptions are what tests want to differ. The zero value is fine.
type PairOptions struct {
	// Args are additional arguments of both servers.
	Args []string

	// ReplicaOf is told the address of the primary and returns the one that the
	// replica connects to instead: something that passes everything on until the
	// test cuts it.
	ReplicaOf func(primaryAddr string) string
}

// RunMariaDBPair starts a Pair of MariaDB servers for a test, and stops it when
// the test is over.
func RunMariaDBPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return runPair(t, startMariaDBPair, opts)
}

// RunPostgresPair starts a Pair of PostgreSQL servers for a test, and stops it
// when the test is over.
func RunPostgresPair(t testing.TB, opts PairOptions) *Pair {
	t.Helper()
	return runPair(t, startPostgresPair, opts)
}

func runPair(t testing.TB, start func(p *Pair, opts PairOptions) error, opts PairOptions) *Pair {
	t.Helper()
	p := new(Pair)
	err := start(p, opts)
	p.all().stopAfter(t)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	if err := p.WaitCaughtUp(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// Promote makes the replica a primary, which it remains. It needs no primary,
// and does not wait for what has not arrived yet.
func (p *Pair) Promote(ctx context.Context) error {
	if err := p.promote(ctx); err != nil {
		return fmt.Errorf("promoting the replica: %w", err)
	}
	return nil
}

// WaitCaughtUp waits until the replica has everything that the primary has now.
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

// all are those that were started.
func (p *Pair) all() Group {
	var all Group
	for _, s := range []*Server{p.Primary, p.Replica} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// start starts the primary, and then the replica with a Kind that knows where to
// find it.
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

// errBehind is what a replica is that has not got everything yet.
var errBehind = errors.New("it is behind")
