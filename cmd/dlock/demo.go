package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo oversell|token|pause",
		Short: "See what goes wrong without a lock, and right with one",
		Long: `Run a scenario that goes wrong without a lock, with real processes and real
servers, and then once more with one.

  oversell   several processes sell the same stock
  token      several processes fetch an access token, and each new one makes the
             last one invalid
  pause      a holder is stopped for longer than its lock lasts, and goes on: the
             one that needs more than a lock

Nothing has to be installed. What it creates is gone when it ends, also after
Ctrl-C.`,
		Example: `  dlock demo oversell
  dlock demo oversell --html oversell.html --store redis://localhost
  dlock demo token
  dlock demo pause`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no demo %s: there are oversell, token and pause", terminal.Quote(args[0]))
			}
			return usagef("which one? There are oversell, token and pause")
		},
	}
	cmd.AddCommand(a.oversellCommand(), a.tokenCommand(), a.pauseCommand())
	return cmd
}

// The processes of the demos, by their argv[0]. They are this program.
var demoProcesses = map[string]func(*child.Parent) error{
	shopName:  shopProcess,
	userName:  userProcess,
	buyerName: buyerProcess,
}

func isDemoProcess(args []string) bool { return len(args) == 1 && demoProcesses[args[0]] != nil }

// demoProcess is the whole program of such a process. It ends when its input does, and
// not by a signal that is meant for all, so that what it holds is given back.
func demoProcess(args []string, stdin io.Reader, stdout io.Writer) int {
	signal.Ignore(supervise.StopSignals...)
	parent := child.Attach(stdin, stdout)
	if err := demoProcesses[args[0]](parent); err != nil && !errors.Is(err, child.ErrDismissed) {
		err = classify(err)
		parent.Fail(err.Error(), exitStatus(err))
		return exitStatus(err)
	}
	return exitOK
}

// stage runs a demo: with a temporary folder, and a context that ends when somebody
// wants it to stop. When it returns, the folder is gone.
func (a *app) stage(ctx context.Context, play func(ctx context.Context, folder string) error) error {
	arrived := make(chan os.Signal, 1)
	for _, s := range supervise.StopSignals {
		if !signal.Ignored(s) { // by nohup, for example
			signal.Notify(arrived, s)
		}
	}
	defer signal.Stop(arrived)
	// A reader that has seen enough is an error like others, and no sudden death.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	go func() {
		select {
		case s := <-arrived:
			interrupt(interruptedError{number: signalNumber(s)})
			signal.Stop(arrived) // a second one ends dlock even if a server hangs
		case <-ctx.Done():
		}
	}()
	folder, err := os.MkdirTemp("", "dlock-demo-")
	if err != nil {
		return failf(exitUnavailable, "cannot make a temporary folder: %w", err)
	}
	err = play(ctx, folder)
	if interrupted := context.Cause(ctx); interrupted != nil {
		err = interrupted // whatever else went wrong because of it
	}
	if left := os.RemoveAll(folder); left != nil {
		err = errors.Join(err, fmt.Errorf("could not remove the temporary folder: %w", left))
	}
	var told *child.ToldError
	if errors.As(err, &told) {
		return failf(told.Status, "%s", told.Text)
	}
	return classify(err)
}

// note tells people on stderr what is going on. The values contain no secrets: with a
// password like "dlock" there would be little left of a text that is searched for it.
func (a *app) note(format string, values ...any) {
	fmt.Fprintln(a.stderr, terminal.Escape(fmt.Sprintf(format, values...)))
}
