package main

import (
	"context"
	"os/exec"
)

// store is a store, with the subjects that lock in it. Each has a file; see
// stores.
type store struct {
	name string

	// open prepares the state of one round, in dir if it lives outside this
	// process, or opens it if it exists already.
	open opener

	// serve starts the servers of a case; nil if the store needs none.
	serve func(ctx context.Context) (served, error)

	// processes reports whether several processes can share the state.
	processes bool

	// held is the number of locks in the case held.
	held int

	subjects []subject
}

// stores are in the order of the measurements.
var stores = []store{memory, sqlite, redisStore, memcachedStore, mysqlStore, postgresStore, etcdStore, zookeeperStore}

// subject is a library or protocol that locks.
type subject struct {
	name string

	// cases restricts the subject to these cases; nil means all.
	cases []string

	// open returns a function that makes clients which share one state, each like
	// that of a separate process.
	open func(dir string) (connect func(context.Context) (client, error), err error)

	// foreign, in place of open, returns the program of a subject in another
	// language. It runs as a process of handover and does what participate does.
	// An error explains why the program cannot run here: the subject is skipped
	// then.
	foreign func(ctx context.Context, dir string) (*exec.Cmd, error)
}

// only restricts a subject to some cases.
func (s subject) only(cases ...string) subject {
	s.cases = cases
	return s
}

// client is the access of one process to the locks.
type client interface {
	// worker returns what one goroutine needs to acquire and release the lock
	// name.
	worker(ctx context.Context, name string) (worker, error)
	// commands returns the number of commands to the store so far; false if they
	// are not counted.
	commands() (n uint64, ok bool)
	close() error
}

// worker acquires and releases one lock repeatedly. It keeps its state between
// the calls, so that measuring allocates nothing.
type worker interface {
	lock(ctx context.Context) error // blocks until the lock is acquired
	unlock(ctx context.Context) error
}
