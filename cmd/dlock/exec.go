package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// holdFlags are the flags of exec, and except for grace those of hold.
type holdFlags struct {
	noWait, limited      bool // limited: wait was given
	wait, ttl, grace     time.Duration
	minHold, maxHold     time.Duration // maxHold zero: no limit
	fair, quiet, verbose bool
	shared               bool
	permits              int // of --limit; zero without it
	conflict             int
	note                 string
}

func (f *holdFlags) add(to *pflag.FlagSet) {
	to.BoolVarP(&f.noWait, "no-wait", "n", false, "give up at once if another holder has the lock")
	addDuration(to, &f.wait, "wait", "w", 0, "give up after `DUR`, connecting included; without -w and -n it waits")
	addDuration(to, &f.ttl, "ttl", "", dlock.DefaultTTL, "`DUR` after which the lock expires if dlock does not renew it")
	to.BoolVar(&f.fair, "fair", false, "strict first come, first served across machines")
	to.BoolVar(&f.shared, "shared", false, "share the lock with other --shared holders: many readers, or one writer")
	to.IntVar(&f.permits, "limit", 0, "let `N` holders in at a time: the lock is a semaphore")
	to.IntVarP(&f.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit status `N` when the lock is not acquired")
	addDuration(to, &f.minHold, "min-hold", "", 0, "keep the lock at least for `DUR`")
	addDuration(to, &f.maxHold, "max-hold", "", 0, "end after the lock was held for `DUR`, with status 76")
	to.StringVar(&f.note, "note", "", "`TEXT` that others see with the lock, at most 1,000 bytes: no secrets")
	to.BoolVarP(&f.quiet, "quiet", "q", false, "do not report that dlock waits for the lock or did not acquire it")
	to.BoolVarP(&f.verbose, "verbose", "v", false, "report the store, and waiting for, acquiring and releasing the lock")
}

func (a *app) execCommand() *cobra.Command {
	var flags holdFlags
	var names []string
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME|-a NAME -a NAME... -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long: `Run COMMAND while holding the lock NAME, and exit with its status.

No shell is involved; for one, run sh -c '...'. dlock looks COMMAND up before it
waits for the lock. Flags of dlock come before NAME: what follows NAME belongs to
COMMAND, with or without the "--".

The command
  runs in a process group of its own, with stdin, stdout, stderr and all other
  open descriptors of the caller (a jobserver of make, for example). dlock sends
  the signals that it receives to the whole group. At a terminal the group is in
  the foreground, so that it can read from the terminal and gets Ctrl-C itself (in
  a pipeline only when it asks for the terminal). Of the signals that the caller
  ignores, only HUP and INT stay ignored: trap others in COMMAND.
  It sees DLOCK_NAME and DLOCK_TOKEN. The token rises with every holder: a resource
  that refuses tokens smaller than the largest it has seen is safe even from a
  holder that is paused for too long. With -a both are lists, one entry a line, in
  the order of the command line. By DLOCK_HELD a nested "dlock exec" of the same
  NAME notices that it would wait for itself; it gives up at once.
  A nested dlock uses the same store: it gets --store as DLOCK_STORE, and
  --store-file as DLOCK_STORE_FILE, but an SQLite file, also that of your state
  folder, always as DLOCK_STORE, by its full path. It does not get a URL with a password, because environments are
  inherited and logged; the nested dlock then fails and says so. Use --store-file.

The lock
  is renewed every third of the TTL while COMMAND runs, and released when COMMAND
  exits, even if processes that it started in the background are still running.
  After INT, TERM, HUP or QUIT it is released when the whole group has ended, or at
  the end of the grace. What COMMAND has sent to a server (psql, ssh, docker) may go
  on there without the lock.
  If renewals fail for too long, the whole group gets TERM and after the grace KILL,
  before the lease ends, and the exit status is 76. To fit inside the lease, a
  longer grace is cut to less than a third of the TTL. dlock notices at the next
  renewal that the lock was broken, and ends the group in the same way. 76 is also
  the status when only the release finds the lock lost.
  If dlock itself is killed, or stopped until the lease ends, its guard, the process
  "dlock-guard NAME", kills the group. A guard that is killed alone is replaced.
  Processes that leave the group (daemons, jobs of an interactive shell) or
  change their user are out of reach. On systems without process groups only the
  command itself is ended, and nothing ends it if dlock is killed.

Ctrl-C while waiting leaves the queue and exits with 130. Ctrl-Z stops the command
and dlock, and with it the renewal: continued within a third of the TTL both go on;
later the lock may be lost, and then the command is ended. A command that is stopped
in another way (kill -STOP) keeps its lock. Without a shell with job control around
dlock, as in a container or under a supervisor, Ctrl-Z does nothing. There a command
that needs the terminal while another program has it is stopped until that gives it
up; it keeps its lock, and dlock says so.

dlock gives up a store that does not answer after five seconds, or with a shorter
--wait after --wait, but not before a second has passed. It gives up a store that
refuses connections at once.

Many holders
  --shared is for readers: any number of them have the lock at the same time, and
  none beside a holder without --shared. While such a writer waits, new readers wait
  behind it. --limit N makes NAME a semaphore: N holders at a time, each with a permit
  that expires by itself if its dlock dies. Everybody uses the same N: while NAME is in
  use in another way, dlock gives up at once with 64. The tokens of holders that have
  the lock at the same time are in no order. Not every store can do this; the error
  says so.

Durations are numbers of seconds, or have a unit: 30, 0.5, 500ms, 5m, 1h30m.

--max-hold ends the command as a loss does, with TERM first and KILL after the grace,
when the lock was held for that long. The status is 76.
--min-hold counts from the acquisition and delays the exit. INT, TERM, HUP or QUIT
ends the delay, also if it ended only COMMAND; the status stays that of COMMAND.

While it waits, dlock reports the holder once: soon if stderr is a terminal or with
-v, otherwise after five seconds. At a terminal it also reports the store. -q
suppresses both.` + "\n\n" + exitStatusHelp,
		Example: `  dlock exec nightly -- ./backup.sh
  dlock exec -n nightly -- ./backup.sh           # give up at once, status 75
  dlock exec -n -q -E 0 nightly -- ./backup.sh   # for cron: skip silently
  dlock exec -w 5m --fair deploy -- make deploy  # queue for five minutes
  dlock exec --min-hold 1m hourly -- ./report    # clocks may differ by a minute
  dlock exec -a orders -a stock -- ./book        # both or none
  dlock exec --max-hold 10m report -- ./report   # ends it after ten minutes
  dlock exec --shared catalogue -- ./search      # many readers, or one writer
  dlock exec --limit 4 gpu -- ./train            # at most four at a time
  dlock exec build -- sh -c 'make && make install'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 || len(names) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeNames(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd.Flags()); err != nil {
				return err
			}
			names, command, err := splitExecArgs(names, args, cmd.ArgsLenAtDash() == 0)
			if err != nil {
				return err
			}
			if err := checkVariables(names); err != nil {
				return err
			}
			path, err := findCommand(command[0])
			if err != nil {
				return err
			}
			r := &lockRequest{app: a, flags: flags, names: names, program: filepath.Base(command[0])}
			r.margin = supervise.SplitTTL(flags.ttl, flags.grace).Margin
			return r.withLocks(cmd.Context(), func(held *heldLocks, signals chan os.Signal) error {
				return r.runCommand(held, path, command, signals)
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	flags.add(f)
	addDuration(f, &flags.grace, "grace", "", 5*time.Second, "`DUR` from TERM to KILL when the lock is lost, always inside the lease")
	f.StringArrayVarP(&names, "name", "a", nil, "`NAME` of one of several locks, all or none: -a NAME -a NAME -- COMMAND")
	return cmd
}

// check rejects invalid flags before the store is opened.
func (f *holdFlags) check(given *pflag.FlagSet) error {
	f.limited = given.Changed("wait")
	flags := []string{"--wait", "--grace", "--min-hold", "--max-hold"}
	for i, value := range []time.Duration{f.wait, f.grace, f.minHold, f.maxHold} {
		if value < 0 {
			return usagef("%s %v is negative", flags[i], value)
		}
	}
	switch {
	case f.shared && given.Changed("limit"):
		return usagef("--shared and --limit exclude each other: a permit of a semaphore cannot be shared")
	case given.Changed("limit") && f.permits <= 0:
		return usagef("--limit %d is not positive", f.permits)
	case f.noWait && f.limited:
		return usagef("-n and -w exclude each other")
	case f.quiet && f.verbose:
		return usagef("-q and -v exclude each other")
	case given.Changed("max-hold") && f.maxHold == 0:
		return usagef("--max-hold %v is not positive: leave it out for no limit", f.maxHold)
	case f.maxHold > 0 && f.minHold > f.maxHold:
		return usagef("--min-hold %v is longer than --max-hold %v", f.minHold, f.maxHold)
	case len(f.note) > driver.MaxNoteBytes:
		return usagef("--note has %d bytes, the limit is %d", len(f.note), driver.MaxNoteBytes)
	case f.ttl <= 0:
		return usagef("--ttl %v is not positive", f.ttl)
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E %d is outside 0 to 255", f.conflict)
	}
	return nil
}

// splitExecArgs separates NAME, unless names were given with -a, from COMMAND. Without
// the "--", a word that looks like a flag is taken for a misplaced flag. afterDash says that there was
// a "--" before args.
func splitExecArgs(given, args []string, afterDash bool) (names, command []string, err error) {
	if len(given) == 0 && len(args) == 0 {
		return nil, nil, usagef("NAME and COMMAND are missing")
	}
	command = args
	if len(given) == 0 {
		given, command = args[:1], args[1:]
	} else if len(args) > 1 && args[1] == "--" && !afterDash {
		return nil, nil, usagef("%[1]s follows the names of -a: write -a %[1]s -- COMMAND [ARG...]", terminal.Quote(args[0]))
	}
	switch {
	case len(command) > 0 && command[0] == "--":
		command = command[1:]
	case !afterDash && len(command) > 0 && len(command[0]) > 1 && command[0][0] == '-':
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

func (r *lockRequest) runCommand(held *heldLocks, path string, command []string, signals chan os.Signal) error {
	// A store may grant less than --ttl. Then the lease has a third of that as its margin at most, and
	// two thirds remain.
	ttl := min(r.flags.ttl, held.Remaining()*3/2)
	job := &supervise.Job{
		Title:  r.title(),
		Path:   path,
		Args:   command,
		Env:    childEnvironment(r.choice.handOn(os.Environ(), held.store.URL), r.names, held),
		Files:  []*os.File{r.stdin, r.stdout, r.stderr},
		Budget: supervise.SplitTTL(ttl, r.flags.grace),
		OnLoss: func() { r.say("lost %s, ending the command: %s", r.title(), lossReason(held)) },
		Limit:  r.limit(held),
		OnLimit: func() {
			r.say("held %s for %v, which is the limit of --max-hold: ending the command", r.title(), r.flags.maxHold)
		},
		OnStopped: func() {
			r.say("the command is stopped until the terminal is free, which it needs and another program has; it keeps %s", r.title())
		},
	}
	result, startErr := job.Run(held, signals)
	if startErr == nil && !result.Lost && !result.Interrupted {
		keepUntil(held.Context(), held.acquired.Add(r.flags.minHold), signals)
	}
	lost := r.release(held, signals)
	switch {
	case errors.Is(startErr, supervise.ErrLost):
		return failf(exitLost, "lost %s before the command could start", r.title())
	case startErr != nil:
		return cannotStart(command[0], startErr)
	case result.Lost:
		return exitWith(exitLost) // OnLoss or OnLimit has reported it
	case lost:
		return failf(exitLost, "lost %s before the command ended, or just after; found out when releasing it", r.title())
	}
	return exitWith(result.Status)
}

// findCommand looks a command up as a shell does.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH contains the current folder
		return path, nil
	case filepath.Base(name) != name:
		return "", cannotStart(name, err)
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(folder, name)); name != "" && err == nil && !info.IsDir() {
			return "", cannotStart(name, fs.ErrPermission)
		}
	}
	return "", cannotStart(name, fs.ErrNotExist)
}

// cannotStart explains why a command does not run, with the exit status of shells.
func cannotStart(name string, err error) error {
	switch {
	case errors.Is(err, supervise.ErrGuard): // not the command's fault
		return &statusError{exitUnavailable, err}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, syscall.ENOTDIR):
		return failf(exitNotFound, "command not found: %s", terminal.Quote(name))
	case errors.Is(err, syscall.ENOEXEC):
		return failf(exitNotExecutable, "cannot execute %s: it is neither a program nor a script with a #! line", terminal.Quote(name))
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner // without the path
	}
	return failf(exitNotExecutable, "cannot execute %s: %s", terminal.Quote(name), strings.TrimPrefix(err.Error(), "exec: "))
}
