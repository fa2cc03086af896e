package main

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// holdFlags are the flags of exec, and except for grace those of hold.
type holdFlags struct {
	noWait   bool
	wait     time.Duration
	limited  bool // wait was given
	ttl      time.Duration
	fair     bool
	conflict int
	grace    time.Duration
	minHold  time.Duration
	maxHold  time.Duration // zero: no limit
	note     string
	quiet    bool
	verbose  bool
}

// add declares the flags that exec and hold share.
func (f *holdFlags) add(to *pflag.FlagSet) {
	to.BoolVarP(&f.noWait, "no-wait", "n", false, "give up at once if another holder has the lock")
	addDuration(to, &f.wait, "wait", "w", 0, "give up after `DUR`, connecting included; without it and -n it waits")
	addDuration(to, &f.ttl, "ttl", "", dlock.DefaultTTL, "`DUR` after which the lock frees itself when dlock is gone")
	to.BoolVar(&f.fair, "fair", false, "strict first come, first served across machines")
	to.IntVarP(&f.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit status `N` when the lock is not acquired")
	addDuration(to, &f.minHold, "min-hold", "", 0, "keep the lock at least for `DUR`")
	addDuration(to, &f.maxHold, "max-hold", "", 0, "end after the lock was held for `DUR`, with status 76")
	to.StringVar(&f.note, "note", "", "`TEXT` that others see with the lock, at most 1,000 bytes: no secrets")
	to.BoolVarP(&f.quiet, "quiet", "q", false, "do not say that the lock is waited for or was not acquired")
	to.BoolVarP(&f.verbose, "verbose", "v", false, "say which store it is, and when the lock is waited for, acquired and released")
}

// maxNote is how long a note may be. Every caller that is refused the lock gets it.
const maxNote = 1000

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
  holder that is paused for too long. With -a both are lists, one entry a line, in
  the order of the command line. DLOCK_HELD is how a nested "dlock exec" of the same
  NAME notices that it would wait for itself; it gives up at once.
  A dlock inside of it uses the same store: --store is handed on as DLOCK_STORE, and
  --store-file as DLOCK_STORE_FILE. A URL with a password is not handed on, because
  environments are inherited and logged; a dlock inside then says so and fails. Use
  --store-file.

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

A store that does not answer is given up after five seconds, or sooner with --wait:
after --wait, but not in less than a second. One that refuses connections is given up
at once.

Durations are numbers of seconds, or have a unit: 30, 0.5, 500ms, 5m, 1h30m.

--max-hold ends the command as a loss does, TERM first and KILL after the grace, when
the lock was held for so long, and the status is 76.
--min-hold counts from the acquisition and delays the exit. INT, TERM, HUP or QUIT
ends the holding early; the status stays that of COMMAND.

While it waits dlock says once who holds the lock: soon if stderr is a terminal or with
-v, otherwise after five seconds. At a terminal it also says which store it uses. -q
keeps it quiet.`

func (a *app) execCommand() *cobra.Command {
	var flags holdFlags
	var names []string
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME|-a NAME -a NAME... -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  execHelp + "\n\n" + exitStatusHelp,
		Example: `  dlock exec nightly -- ./backup.sh
  dlock exec -n nightly -- ./backup.sh           # give up at once, status 75
  dlock exec -n -q -E 0 nightly -- ./backup.sh   # for cron: skip without a word
  dlock exec -w 5m --fair deploy -- make deploy  # wait in line for five minutes
  dlock exec --min-hold 1m hourly -- ./report    # clocks may differ by a minute
  dlock exec -a orders -a stock -- ./book        # both or none
  dlock exec --max-hold 10m report -- ./report   # ends it after ten minutes
  dlock exec build -- sh -c 'make && make install'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 || len(names) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeNames(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.limited = cmd.Flags().Changed("wait")
			if err := flags.check(); err != nil {
				return err
			}
			names, command, err := splitExecArgs(names, args)
			if err != nil {
				return err
			}
			e := &execution{acquisition{app: a, flags: flags, names: names}, command}
			return e.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	flags.add(f)
	addDuration(f, &flags.grace, "grace", "", 5*time.Second, "`DUR` from TERM to KILL when the lock is lost, always inside the lease")
	f.StringArrayVarP(&names, "name", "a", nil, "`NAME` of one of several locks, all or none: -a NAME -a NAME -- COMMAND")
	return cmd
}

// check refuses flags that make no sense, before anything is opened.
func (f *holdFlags) check() error {
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
	case f.maxHold < 0:
		return usagef("--max-hold %v is negative", f.maxHold)
	case f.maxHold > 0 && f.minHold > f.maxHold:
		return usagef("--min-hold %v is longer than --max-hold %v", f.minHold, f.maxHold)
	case len(f.note) > maxNote:
		return usagef("--note has %d bytes, the limit is %d", len(f.note), maxNote)
	case f.ttl <= 0:
		return usagef("--ttl %v is not positive", f.ttl)
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E %d is outside 0 to 255", f.conflict)
	}
	return nil
}

// splitExecArgs separates NAME, unless names were given with -a, from COMMAND. Where
// the "--" is missing, a word that looks like a flag is more likely a misplaced one than
// a command.
func splitExecArgs(given, args []string) (names, command []string, err error) {
	if len(given) == 0 && len(args) == 0 {
		return nil, nil, usagef("NAME and COMMAND are missing")
	}
	command = args
	if len(given) == 0 {
		given, command = args[:1], args[1:]
	}
	switch {
	case len(command) > 0 && command[0] == "--":
		command = command[1:]
	case len(command) > 0 && len(command[0]) > 1 && command[0][0] == '-':
		return nil, nil, usagef("flags come before NAME: dlock exec [flags] NAME -- COMMAND [ARG...]")
	}
	if len(command) == 0 {
		return nil, nil, usagef("COMMAND is missing: dlock exec [flags] NAME -- COMMAND [ARG...]")
	}
	for _, name := range given {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, command, nil
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
