// Command dlock runs commands under a distributed lock and shows which locks are held.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// app is what the commands of one run share.
type app struct {
	stdin, stdout, stderr *os.File       // exec hands them to its command
	flags                 *pflag.FlagSet // of all commands
	storeURL              string         // of --store
	storeFile             string         // of --store-file
	choice                storeChoice    // the store that is in use
	abandoned             bool           // the release of a lock was given up
	conflict              bool           // the lock was not acquired: the status is that of -E
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &errorKeeper{w: stdout}
	root.SetOut(out)
	addCompletion(root)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if out.err != nil {
		err = terminal.OutputError(out.err)
	}
	if errors.Is(err, terminal.ErrOutput) {
		err = classify(err)
	}
	if quotesArgs(err) {
		err = &statusError{exitStatus(err), errors.New(stores.NewArgsRedactor(args).Clean(err.Error()))}
	}
	status := exitStatus(err)
	if err == nil || isSilent(err) {
		return status
	}
	a.say("%v", err)
	if status == exitUsage && !a.conflict {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return status
}

// errorKeeper keeps the first error of writing, which cobra ignores in its help.
type errorKeeper struct {
	w   io.Writer
	err error
}

func (k *errorKeeper) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	k.err = cmp.Or(k.err, err)
	return n, err
}

// say writes one message to stderr, without control characters.
func (a *app) say(format string, values ...any) {
	fmt.Fprintf(a.stderr, "dlock: %s\n", terminal.Escape(fmt.Sprintf(format, values...)))
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "dlock",
		Short: "Run commands under a distributed lock",
		Long: `dlock makes sure that only one of many processes does something at a time. The
lock is in a store that all of them can reach, and expires when its holder dies.

Store URLs (--store, or else $` + storeVariable + `):
` + stores.List() + `
  A password in --store is visible to every user of the machine (ps). Put the URL
  into a file that only you can read and use --store-file FILE, or $` + storeFileVariable + `,
  or else put it into $` + storeVariable + `.
  Without a URL, dlock uses an SQLite file in your state folder:
  $XDG_STATE_HOME/dlock/dlock.db, or else ~/.local/state/dlock/dlock.db.
  sqlite://./file.db is relative to the current folder.

` + exitStatusHelp,
		Example: `  dlock exec nightly -- ./backup.sh          # waits for the lock
  dlock exec -n nightly -- ./backup.sh       # or gives up at once, status 75
  dlock ls                                   # which locks are held`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       readVersion().Version,
	}
	a.flags = root.PersistentFlags()
	a.flags.StringVar(&a.storeURL, "store", "", "`URL` of the store; default $"+storeVariable+", or else an SQLite file of yours (a password in it is visible in ps)")
	a.flags.StringVar(&a.storeFile, "store-file", "", "`FILE` that contains the URL of the store, so that no list of processes shows its password")
	root.InitDefaultVersionFlag() // so that the word after -v is not taken for its value
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		a.execCommand(),
		a.holdCommand(),
		a.listCommand(),
		a.showCommand(),
		a.breakCommand(),
		a.doctorCommand(),
		a.versionCommand(),
	)
	return root
}

// addCompletion adds cobra's command, which keeps the output: call it after SetOut. It replaces
// the command's answer to an unknown shell, which is the help.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = nil
		completion.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown shell %s (want bash, zsh, fish or powershell)", terminal.Quote(args[0]))
			}
			return cmd.Help()
		}
	}
}

// helpCommand replaces cobra's, which returns success for an unknown topic.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil || len(rest) > 0 {
				return usagef("no such command; see 'dlock help'")
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%s takes %s, not %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
