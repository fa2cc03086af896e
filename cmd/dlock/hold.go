package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const holdHelp = `Hold the lock NAME until stdin is closed, the parent process ends, or a signal
arrives, for the middle part of a script.

When it has the lock it prints one line, and nothing else on stdout:
  {"name":"nightly","token":7,"ttl_ms":30000}

The lock is renewed while it is held, and given back at the end. If it is lost,
dlock says so and exits with 76: a script that must not go on without the lock has
to look, or should use "dlock exec", which ends its command in time.

A shell gives /dev/null to jobs in the background as stdin, which is closed from
the beginning: give it a pipe, as the example does. Closing the pipe, or the end of
the script, however it ends, gives the lock back.

The exit status is 0 when stdin was closed or the parent ended, 75 when the lock was
not acquired, 76 when it was lost or held for --max-hold, and 128+n after signal n.`

func (a *app) holdCommand() *cobra.Command {
	var flags holdFlags
	cmd := &cobra.Command{
		Use:   "hold [flags] NAME",
		Short: "Hold a lock until stdin is closed",
		Long:  holdHelp,
		Example: `  mkfifo gate granted                               # in a script
  dlock hold nightly <gate >granted &
  exec 9>gate; read -r line <granted                # waits until it is held
  ...
  exec 9>&-                                         # gives it back

  coproc dlock hold nightly                         # the same with bash
  read -r line <&"${COPROC[0]}"`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.completeNames,
		Args:                  exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.limited = cmd.Flags().Changed("wait")
			if err := flags.check(); err != nil {
				return err
			}
			h := &holding{acquisition{app: a, flags: flags, names: args}}
			return h.run(cmd.Context())
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

// holding is one run of hold.
type holding struct{ acquisition }

// holdJSON is the line that hold prints.
type holdJSON struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	TTLMS int64  `json:"ttl_ms"`
}

func (h *holding) run(ctx context.Context) error {
	parent := os.Getppid()         // before the waiting, which may outlive it
	signal.Ignore(syscall.SIGPIPE) // a reader that is gone is an error, and the lock is given back
	return h.withLocks(ctx, func(held *heldLocks, _ *openStore, arrived chan os.Signal) error {
		return h.hold(held, parent, arrived)
	})
}

// hold keeps the lock until it is time to give it back.
func (h *holding) hold(held *heldLocks, parent int, arrived chan os.Signal) error {
	h.announceAcquired(held)
	lock := held.locks[0]
	end := printJSON(h.stdout, holdJSON{lock.name, lock.token, h.flags.ttl.Milliseconds()})
	if end == nil {
		end = h.wait(held, parent, arrived)
	}
	if end == nil {
		keep(held.Context(), held.acquired.Add(h.flags.minHold), arrived)
	}
	if lost := h.release(held); lost && end == nil {
		end = failf(exitLost, "lost %s before it was given back", h.title())
	}
	return end
}

// parentBeat is how often hold looks whether its parent is still there.
const parentBeat = 200 * time.Millisecond

// wait returns nil when stdin is closed or the parent has ended, and otherwise why the
// lock cannot be held any longer.
func (h *holding) wait(held *heldLocks, parent int, arrived <-chan os.Signal) error {
	beat := time.NewTicker(parentBeat)
	defer beat.Stop()
	var limit <-chan time.Time
	if h.flags.maxHold > 0 {
		limit = time.After(time.Until(held.acquired.Add(h.flags.maxHold)))
	}
	closed := h.stdinClosed()
	for {
		select {
		case <-closed:
			return nil
		case <-beat.C:
			if os.Getppid() != parent {
				return nil
			}
		case <-held.Context().Done():
			return failf(exitLost, "lost %s: %s", h.title(), lossReason(held))
		case <-limit:
			return failf(exitLost, "held %s for %v, which is the limit of --max-hold", h.title(), h.flags.maxHold)
		case s := <-arrived:
			if isStopSignal(s) {
				return interruptedError{signalNumber(s), false}
			}
		}
	}
}

// stdinClosed returns a channel that is closed at the end of stdin. What is written to
// it is thrown away. A stdin that cannot be read, such as the terminal of others, is not
// closed.
func (h *holding) stdinClosed() <-chan struct{} {
	closed := make(chan struct{})
	if h.stdin == nil {
		close(closed)
		return closed
	}
	ignoreTerminalStops()
	go func() {
		if _, err := io.Copy(io.Discard, h.stdin); err == nil || errors.Is(err, os.ErrClosed) {
			close(closed)
		}
	}()
	return closed
}
