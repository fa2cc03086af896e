package main

import (
	"context"
	"os/exec"
)

// store is a place for locks, with the subjects that lock in it. One file
// each; see stores.
type store struct {
	name string

	// open prepares the state of one round, in dir if it lives outside this
	// process, and opens what is there already.
	open opener

	// serve starts the servers of a case; nil if the store needs none.
	serve func(ctx context.Context) (served, error)

	// processes says that several processes can share the state.
	processes bool

	// held is how many locks the case of that name holds.
	held int

	subjects []subject
}

// stores, in the order in which they are measured.
var stores = []store{memory, sqlite, redisStore, memcachedStore, mysqlStore, postgresStore, etcdStore, zookeeperStore}

// subject is something that locks.
type subject struct {
	name string

	// cases in which it is measured; nil for all.
	cases []string

	// open returns a function that makes clients which share one state, each
	// as a process of its own would have it.
	open func(dir string) (connect func(context.Context) (client, error), err error)

	// foreign, in place of open, is the program of a subject in another language,
	// which is a process of handover and does what participate does. An error says
	// why there is none here: the subject is skipped then.
	foreign func(ctx context.Context, dir string) (*exec.Cmd, error)
}

// only restricts a subject to some cases.
func (s subject) only(cases ...string) subject {
	s.cases = cases
	return s
}

// client is one process's access to the locks.
type client interface {
	// worker returns what one goroutine needs to take and give the lock name.
	worker(ctx context.Context, name string) (worker, error)
	// commands is how many commands were sent to the store so far; false where
	// there is no such thing.
	commands() (n uint64, ok bool)
	close() error
}

// worker takes and gives one lock, again and again. It keeps what it has to
// remember in between, so that measuring allocates nothing.
type worker interface {
	lock(ctx context.Context) error // waits
	unlock(ctx context.Context) error
}
