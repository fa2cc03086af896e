package main

import (
	"context"
	"os"
	"path/filepath"
)

// execution is one run of exec.
type execution struct {
	acquisition
	command []string
}

// ending is how a command ended.
type ending struct {
	status      int  // its exit status, 128+n if signal n ended it
	lost        bool // the lock was lost, or held for too long, before it ended
	interrupted bool // by a signal that asks to stop
}

func (e *execution) run(ctx context.Context) error {
	path, err := findCommand(e.command[0])
	if err != nil {
		return err
	}
	e.program = filepath.Base(e.command[0])
	e.margin = divide(e.flags.ttl, e.flags.grace).margin
	return e.withLocks(ctx, func(held *heldLocks, store *openStore, arrived chan os.Signal) error {
		return e.hold(held, path, store, arrived)
	})
}

// hold runs the command under the locks and gives them back.
func (e *execution) hold(held *heldLocks, path string, store *openStore, arrived chan os.Signal) error {
	e.announceAcquired(held)
	command := &job{
		name:     e.title(),
		path:     path,
		args:     e.command,
		env:      childEnvironment(store.choice.handOn(os.Environ(), store), store.identity, held.locks),
		files:    []*os.File{e.stdin, e.stdout, e.stderr},
		patience: divide(e.flags.ttl, e.flags.grace),
		onLoss: func() {
			e.say("lost %s, ending the command: %s", e.title(), lossReason(held))
		},
		onLimit: func() {
			e.say("held %s for %v, which is the limit of --max-hold: ending the command", e.title(), e.flags.maxHold)
		},
	}
	if e.flags.maxHold > 0 {
		command.endAt = held.acquired.Add(e.flags.maxHold)
	}
	if held.Context().Err() != nil {
		return failf(exitLost, "lost %s before the command could start", e.title())
	}
	end, startErr := command.run(held, arrived)
	if startErr == nil && !end.lost && !end.interrupted {
		keep(held.Context(), held.acquired.Add(e.flags.minHold), arrived)
	}
	lost := e.release(held)
	switch {
	case startErr != nil:
		return cannotStart(e.command[0], startErr)
	case end.lost:
		return exitWith(exitLost) // it has been said
	case lost:
		return failf(exitLost, "lost %s before the command ended, or just after; found out when releasing it", e.title())
	}
	return exitWith(end.status)
}
