package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
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
  pause      a holder is stopped for longer than its lock lasts, and goes on: this
             needs more than a lock

Nothing has to be installed. Everything that a demo creates is removed when it ends,
also after Ctrl-C.`,
		Example: `  dlock demo oversell
  dlock demo oversell --html oversell.html --store redis://localhost
  dlock demo token
  dlock demo pause`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no demo %s: there are oversell, token and pause", terminal.Quote(args[0]))
			}
			return usagef("name a demo: there are oversell, token and pause")
		},
	}
	cmd.AddCommand(a.oversellCommand(), a.tokenCommand(), a.pauseCommand())
	return cmd
}

// scenario is a demo.
type scenario interface {
	Check() error
	Run(ctx context.Context) error
}

// prepareDemo adds what the commands of all demos share.
func (a *app) prepareDemo(cmd *cobra.Command, d scenario, s *demo.Stage, lock, runs string) {
	cmd.Args = arguments(0, 0, "no arguments")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runDemo(cmd, d, s, lock) }
	f := cmd.Flags()
	f.BoolVar(&s.JSON, "json", false, "one JSON object a line")
	f.StringVar(&s.HTML, "html", "", "write a page with timelines to `FILE`")
	f.StringVar(&s.SVG, "svg", "", "write a picture of "+runs+" runs to `FILE`")
}

func addDatabaseFlag(cmd *cobra.Command, s *demo.Stage) {
	cmd.Flags().StringVar(&s.Database, "db", "", "`URL` of the shop's database: mysql://, mariadb:// or postgres://; default: an SQLite file")
}

// runDemo runs a demo in a temporary folder. A stop signal ends the context of the demo.
func (a *app) runDemo(cmd *cobra.Command, d scenario, stage *demo.Stage, lock string) error {
	if cmd.Flags().Changed("db") && stage.Database == "" {
		return usagef("--db is empty: leave it out for an SQLite file")
	}
	if err := d.Check(); err != nil {
		return classify(err)
	}
	ctx, interrupt := context.WithCancelCause(cmd.Context())
	defer interrupt(nil)
	signals := make(chan os.Signal, 1)
	notifyStop(signals)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE) // a closed stdout is an error, and the demo cleans up
	defer signal.Reset(syscall.SIGPIPE)
	go func() {
		select {
		case s := <-signals:
			interrupt(interruptedError{signal: s})
			signal.Stop(signals) // a second signal ends dlock even if a server does not answer
		case <-ctx.Done():
		}
	}()
	folder, err := os.MkdirTemp("", "dlock-demo-")
	if err != nil {
		return failf(exitUnavailable, "cannot make a temporary folder: %w", err)
	}
	stage.Stdout, stage.Stderr, stage.Folder = a.stdout, a.stderr, folder
	defer stage.Close()
	if err = stage.Open(); err == nil {
		stage.Store, err = a.chooseDemoStore(ctx, folder, lock)
	}
	if err == nil {
		err = d.Run(ctx)
	}
	if interrupted := context.Cause(ctx); interrupted != nil {
		err = interrupted // other errors follow from it
	}
	if left := os.RemoveAll(folder); left != nil {
		err = errors.Join(err, fmt.Errorf("could not remove the temporary folder: %w", left))
	}
	return classify(err)
}

// chooseDemoStore returns the store of this command line, or else an SQLite file in folder.
// It tries the store with a lock before the demo starts.
func (a *app) chooseDemoStore(ctx context.Context, folder, lock string) (demo.Store, error) {
	choice, err := a.chooseStore()
	if err != nil || choice.url == "" {
		return demo.Store{File: filepath.Join(folder, "locks.db"), Name: "an SQLite file"}, err
	}
	chosen := demo.Store{URL: choice.url}
	err = a.withClient(ctx, "", func(client *dlock.Client, store *openStore) error {
		chosen.Name = store.URL
		lease, err := client.TryLock(ctx, lock)
		if errors.Is(err, dlock.ErrHeld) { // by another demo
			return nil
		}
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	})
	return chosen, err
}
