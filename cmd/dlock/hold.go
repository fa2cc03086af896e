package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

func (a *app) holdCommand() *cobra.Command {
	var flags holdFlags
	cmd := &cobra.Command{
		Use:   "hold [flags] NAME",
		Short: "Hold a lock until stdin is closed",
		Long: `Hold the lock NAME until stdin is closed, the parent process ends, or a signal
arrives, for the middle part of a script.

When it has the lock it prints one line, and nothing else on stdout:
  {"name":"nightly","token":7,"ttl_ms":30000}
The TTL is the one that was asked for: see "dlock doctor".

With --shared it is one of many readers, with --limit N one of N holders: see "dlock
help exec".

dlock renews the lock while it holds it, and releases it at the end. If the lock is
lost, dlock says so and exits with 76: a script that must not go on without the lock
has to check, or should use "dlock exec", which ends its command in time.

A shell gives jobs in the background /dev/null as stdin, which is closed from the
beginning: use a pipe, as the example does. Closing the pipe, or any end of the
script, releases the lock. Jobs that the script leaves in the background inherit the
pipe and keep the lock: start them with 9>&-. Nothing is printed if the lock was not
acquired, and then read fails: without the exit the script would go on without it.

The exit status is 0 when stdin was closed or the parent ended, 74 when the line could
not be printed, 75 when the lock was not acquired, 76 when it was lost or held for
--max-hold, and 128+n after signal n.`,
		Example: `  gate=$(mktemp -d) && mkfifo "$gate/in" "$gate/out" || exit   # in a script
  dlock hold nightly <"$gate/in" >"$gate/out" & holder=$!
  exec 9>"$gate/in"
  read -r line <"$gate/out"; got=$?; rm -r "$gate"  # waits for the lock
  [ $got = 0 ] || exit
  ...
  exec 9>&-; wait $holder || exit                   # releases it; 76: it was lost

  coproc dlock hold nightly                         # the same with bash
  holder=$COPROC_PID; read -r line <&"${COPROC[0]}" || exit
  ...
  exec {COPROC[1]}>&-; wait $holder || exit`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.completeNames,
		Args:                  arguments(1, 1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd.Flags()); err != nil {
				return err
			}
			r := &lockRequest{app: a, flags: flags, names: args}
			return r.hold(cmd.Context())
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

type holdJSON struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	TTLMS int64  `json:"ttl_ms"`
}

// hold keeps the lock until waitForEnd returns, and releases it.
func (r *lockRequest) hold(ctx context.Context) error {
	parent := os.Getppid() // the parent may end while this process waits
	return r.withLocks(ctx, func(held *heldLocks, signals chan os.Signal) error {
		name := r.names[0]
		printed := make(chan error, 1)
		go func() {
			printed <- terminal.PrintJSON(r.stdout, holdJSON{name, held.Token(name), r.flags.ttl.Milliseconds()})
		}()
		err := r.waitForEnd(held, parent, signals, printed)
		if err == nil {
			keepUntil(held.Context(), held.acquired.Add(r.flags.minHold), signals)
		}
		if lost := r.release(held, signals); lost && err == nil {
			err = failf(exitLost, "lost %s before it was released", r.title())
		}
		return err
	})
}

// waitForEnd returns nil at the end of stdin or of the parent, otherwise why the hold must end. The end
// of stdin counts when the line was printed, which takes until it is read if stdout is a full pipe.
func (r *lockRequest) waitForEnd(held *heldLocks, parent int, signals <-chan os.Signal, printed <-chan error) error {
	check := time.NewTicker(200 * time.Millisecond) // whether the parent has ended
	defer check.Stop()
	limit := r.limit(held)
	var closed <-chan struct{}
	for {
		select {
		case err := <-printed:
			if err != nil {
				return err
			}
			closed = r.stdinClosed()
		case <-closed:
			return nil
		case <-check.C:
			if os.Getppid() != parent {
				return nil
			}
		case <-held.Context().Done():
			return failf(exitLost, "lost %s: %s", r.title(), lossReason(held))
		case <-limit:
			return failf(exitLost, "held %s for %v, which is the limit of --max-hold", r.title(), r.flags.maxHold)
		case s := <-signals:
			if supervise.IsStop(s) {
				return interruptedError{s, true}
			}
		}
	}
}

// stdinClosed returns a channel that is closed at the end of stdin, and discards what is
// read. A stdin that cannot be read, such as a terminal from the background, counts as open.
func (r *lockRequest) stdinClosed() <-chan struct{} {
	closed := make(chan struct{})
	supervise.IgnoreTerminalStops()
	go func() {
		_, err := io.Copy(io.Discard, r.stdin)
		if err == nil || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrInvalid) { // or there is none
			close(closed)
		}
	}()
	return closed
}
