// Command lab plays the stories of how distributed locks fail, on real servers, with
// dlock, with other libraries, and with the wrong ways to lock that articles warn of.
//
//	go run ./test/lab list
//	go run ./test/lab run [--store redis,etcd] [--html FILE] [--json FILE] [--docs DIR] [--seed N] NAME...|all
//	go run ./test/lab draw [--html FILE] [--docs DIR] FILE    # from the results that --json wrote
//	go run ./test/lab soak --store STORE|all [--time 10m] [--seed N] [--faults LIST] [--every 2s] [--json FILE] [--pictures DIR]
//	go run ./test/lab soak --spoiled
//
// A story is an experiment: two to five processes lock, write an account, and are
// killed, paused and cut off at the same points whatever they lock with. The verdict
// for each way to lock is one of
//
//	held                     one holder at a time, and each process got its turn
//	stale write refused      a late write, which the fence refused
//	stale write accepted     a late write, and no fence
//	herd                     one holder at a time, but every release woke all waiters
//	stuck                    a process never got the lock
//	two holders, fence held  two processes believed to have the lock, and the fence refused the older one
//	two holders              two processes believed to have the lock
//
// The exit status is 0 if dlock held in every story as its documents promise, and
// every wrong way to lock was caught. --docs writes docs/lab.md.
//
// The stories with partitions create network namespaces, and the one with a full disk mounts a small
// file system: they need root. The subjects that are written in Java are left out unless
// scripts/build-java.sh redisson and scripts/build-java.sh curator have fetched their libraries.
//
// A soak lets at least four processes, or clients of a process, take exclusive, shared, limited,
// fair and batch locks while faults happen at random, and checks all that they did: tokens rise, a
// name has no more holders than its mode allows, released locks are handed on, and nothing is
// left over. The exit status is 0 if all of this held. --spoiled makes mistakes in a copy of
// dlock: the exit status is 0 if a soak finds each of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/test/lab/soak"
	"github.com/dlock-go/dlock/test/lab/stage"
	"github.com/dlock-go/dlock/test/lab/stories"
)

func main() {
	if description := os.Getenv(stage.WorkerVariable); description != "" {
		exit(stage.Work(description))
	}
	if description := os.Getenv(soak.WorkerVariable); description != "" {
		exit(soak.Work(description))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(start(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func start(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "list":
		list(os.Stdout)
		return nil
	case "run":
		return run(ctx, args[1:])
	case "draw":
		return draw(args[1:])
	case "soak":
		return runSoak(ctx, args[1:])
	}
	fmt.Fprint(os.Stderr, "usage:\n  lab list\n  lab run [--store redis,etcd] [--html FILE] [--json FILE] [--docs DIR] [--seed N] NAME...|all\n"+
		"  lab draw [--html FILE] [--docs DIR] FILE\n"+
		"  lab soak --store STORE|all [--time 10m] [--seed N] [--faults LIST] [--every 2s] [--json FILE] [--pictures DIR]\n  lab soak --spoiled\n")
	return fmt.Errorf("%q is not a command", args[0])
}

func list(out io.Writer) {
	for _, story := range stories.All {
		fmt.Fprintf(out, "%2d  %-24s %s\n", story.Number, story.Name, story.Title)
		for _, place := range story.On {
			var names []string
			for _, c := range place.Cases {
				names = append(names, c.Subject)
			}
			fmt.Fprintf(out, "    %-24s %s\n", "", strings.Join(names, ", "))
		}
	}
}

// run plays the stories that are named on the command line.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	o := outputFlags(flags)
	only := flags.String("store", "", "comma-separated stores; default all")
	seed := flags.Uint64("seed", 1, "varies the waits of the experiments a little")
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	jobs, err := choose(names, *only)
	if err != nil {
		return err
	}
	results, err := playAll(ctx, jobs, *seed)
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, o.write(results))
}

// draw writes the page and the documents from results that were written before.
func draw(args []string) error {
	flags := flag.NewFlagSet("draw", flag.ContinueOnError)
	o := outputFlags(flags)
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return errors.New("name the file that lab run --json wrote")
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		return err
	}
	var results []*stage.Result
	if err := json.Unmarshal(text, &results); err != nil {
		return fmt.Errorf("%s: %w", names[0], err)
	}
	return o.write(results)
}

// parse accepts flags before, between and after the names.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) == 0 {
			return names, nil
		}
		names, args = append(names, args[0]), args[1:]
	}
}

// job is a story on one store.
type job struct {
	stories.Story
	stories.Place
}

func choose(names []string, only string) (jobs []job, err error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("name a story, or all: see lab list")
	}
	var known []string
	for _, story := range stories.All {
		known = append(known, story.Name)
		if !slices.Contains(names, "all") && !slices.Contains(names, story.Name) {
			continue
		}
		for _, place := range story.On {
			if only == "" || slices.Contains(strings.Split(only, ","), place.Store) {
				jobs = append(jobs, job{story, place})
			}
		}
	}
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("no story is called %q: see lab list", name)
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("none of these stories is played on %s", only)
	}
	return jobs, nil
}
