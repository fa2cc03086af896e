package main

import (
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

// execFlags are the flags of exec.
type execFlags struct {
	noWait   bool
	wait     time.Duration
	limited  bool // wait was given
	ttl      time.Duration
	fair     bool
	conflict int
	grace    time.Duration
	minHold  time.Duration
	note     string
	quiet    bool
	verbose  bool
}

const execHelp = `Run COMMAND while holding the lock NAME, and exit with its status.

No shell is involved; for one, run sh -c '...'. COMMAND is looked up before the
lock is waited for. Flags of dlock come before NAME: what follows NAME belongs to
COMMAND, with or without the "--".

The command
  runs in a process group of its own, with stdin, stdout, stderr and all other
  open descriptors of the caller passed through (a jobserver of make, for example).
  Signals that dlock receives go to the whole group. At a terminal the group is put
  in the foreground, so that it can read it and gets Ctrl-C itself (in a pipeline
  only when it asks for the terminal).
  It sees DLOCK_NAME and DLOCK_TOKEN. The token rises with every holder: a resource
  that refuses tokens smaller than the largest it has seen is safe even from a
  holder that is paused for too long. DLOCK_HELD is how a nested "dlock exec" of
  the same NAME notices that it would wait for itself; it gives up at once.

The lock
  is renewed every third of the TTL while COMMAND runs, and released when COMMAND
  exits, even if processes that it started in the background are still running.
  If renewals fail for too long the whole group gets TERM, after the grace KILL,
  all before the lease is over, and the exit status is 76. To fit inside the lease
  the grace is cut to less than a third of the TTL where it is longer. A lock that
  somebody breaks is noticed at the next renewal and ends the same way. 76 is also
  the status when only the release finds the lock lost.
  If dlock itself is killed, or stopped until the lease is over, the group is killed
  too. Processes that leave the group (daemons, jobs of an interactive shell) or
  change their user are out of reach. On systems without process groups only the
  command itself is ended, and nothing ends it if dlock is killed.

Ctrl-C while waiting gives up the place in the queue and exits with 130. Ctrl-Z
stops the command and dlock, and with it the renewal: continued within a third of
the TTL both go on; later the lock may be lost, and the command is ended then. A
command that is stopped in another way (kill -STOP) keeps its lock.

--min-hold counts from the acquisition and delays the exit. INT, TERM, HUP or QUIT
ends the holding early; the status stays that of COMMAND.

While it waits dlock says once who holds the lock, if stderr is a terminal.`

func (a *app) execCommand() *cobra.Command {
	var flags execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  execHelp + "\n\n" + exitStatusHelp,
		Example: `  dlock exec nightly -- ./backup.sh
  dlock exec -n nightly -- ./backup.sh           # give up at once, status 75
  dlock exec -n -q -E 0 nightly -- ./backup.sh   # for cron: skip without a word
  dlock exec -w 5m --fair deploy -- make deploy  # wait in line for five minutes
  dlock exec --min-hold 1m hourly -- ./report    # clocks may differ by a minute
  dlock exec build -- sh -c 'make && make install'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeNames(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.limited = cmd.Flags().Changed("wait")
			if err := flags.check(); err != nil {
				return err
			}
			name, command, err := splitExecArgs(args)
			if err != nil {
				return err
			}
			e := &execution{app: a, flags: flags, name: name, command: command}
			return e.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&flags.noWait, "no-wait", "n", false, "give up at once if somebody else has the lock")
	f.DurationVarP(&flags.wait, "wait", "w", 0, "give up after `DUR`; without it and -n it waits")
	f.DurationVar(&flags.ttl, "ttl", dlock.DefaultTTL, "`DUR` after which the lock frees itself when dlock is gone")
	f.BoolVar(&flags.fair, "fair", false, "strict first come, first served across machines")
	f.IntVarP(&flags.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit status `N` when the lock is not acquired")
	f.DurationVar(&flags.grace, "grace", 5*time.Second, "`DUR` from TERM to KILL when the lock is lost, always inside the lease")
	f.DurationVar(&flags.minHold, "min-hold", 0, "keep the lock at least for `DUR`")
	f.StringVar(&flags.note, "note", "", "`TEXT` that others see with the lock: no secrets")
	f.BoolVarP(&flags.quiet, "quiet", "q", false, "do not say that the lock is waited for or was not acquired")
	f.BoolVarP(&flags.verbose, "verbose", "v", false, "say when the lock is waited for, acquired and released")
	return cmd
}

// check refuses flags that make no sense, before anything is opened.
func (f *execFlags) check() error {
	switch {
	case f.noWait && f.limited:
		return usagef("-n and -w exclude each other")
	case f.quiet && f.verbose:
		return usagef("-q and -v exclude each other")
	case f.wait < 0:
		return usagef("--wait %v is negative", f.wait)
	case f.grace < 0:
		return usagef("--grace %v is negative", f.grace)
	case f.minHold < 0:
		return usagef("--min-hold %v is negative", f.minHold)
	case f.ttl <= 0:
		return usagef("--ttl %v is not positive", f.ttl)
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E %d is outside 0 to 255", f.conflict)
	}
	return nil
}

// splitExecArgs separates NAME from COMMAND. Where the "--" is missing, a word
// that looks like a flag is more likely a misplaced one than a command.
func splitExecArgs(args []string) (name string, command []string, err error) {
	if len(args) == 0 {
		return "", nil, usagef("NAME and COMMAND are missing")
	}
	name, command = args[0], args[1:]
	switch {
	case len(command) > 0 && command[0] == "--":
		command = command[1:]
	case len(command) > 0 && len(command[0]) > 1 && command[0][0] == '-':
		return "", nil, usagef("flags come before NAME: dlock exec [flags] NAME -- COMMAND [ARG...]")
	}
	if len(command) == 0 {
		return "", nil, usagef("COMMAND is missing: dlock exec [flags] NAME -- COMMAND [ARG...]")
	}
	return name, command, nil
}

// patience is how the TTL of a lease is divided when the lock is lost.
type patience struct {
	margin time.Duration // from the loss to the end of the lease
	grace  time.Duration // from TERM to KILL
	beat   time.Duration // how often to note that the lock is still held
}

// divide fits the grace into a third of the TTL, which is the largest margin a
// lease can have, and keeps a reserve for everything else that takes time.
func divide(ttl, grace time.Duration) patience {
	third := ttl / 3
	reserve := min(time.Second, third/4)
	margin := min(grace+reserve, third)
	return patience{
		margin: margin,
		grace:  margin - reserve,
		beat:   max(reserve/4, 5*time.Millisecond),
	}
}
