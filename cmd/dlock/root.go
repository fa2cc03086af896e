package main

import (
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

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
  dlock ls                                   # which locks are held
  dlock demo oversell                        # what goes wrong without a lock`,
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
		a.demoCommand(),
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

// arguments rejects fewer arguments than least and more than most.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("%s takes %s, not %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
