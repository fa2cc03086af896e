// Command lab plays the stories of how distributed locks fail, with dlock, with other libraries, and with
// the wrong ways to lock that articles warn of. "go run ./lab --help" says how.
//
// A story is an experiment: a few processes lock, and are killed, paused and cut off at the same points
// whatever they lock with. Three stories need no server: they are played on a file, or on any store.
//
// A soak lets at least four processes, or clients of a process, take exclusive, shared, limited,
// fair and batch locks while faults happen at random, and checks all that they did: tokens rise, a
// name has no more holders than its mode allows, released locks are handed on, and nothing is
// left over.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/stories"
)

const usage = `The laboratory plays stories of how distributed locks fail.

  go run ./lab                    lists the stories
  go run ./lab NAME... [FLAGS]    plays some, or all
  go run ./lab draw FILE [FLAGS]  draws the results that --save wrote
  go run ./lab soak [FLAGS]       locks for long under random faults: go run ./lab soak --help

  go run ./lab oversell                                # what goes wrong without a lock
  go run ./lab oversell --html oversell.html           # and which requests overlapped
  go run ./lab oversell --store redis                  # on a Redis that the laboratory starts
  go run ./lab oversell --store redis://localhost --db mysql://user:pass@localhost/shop
  go run ./lab oversell --json | jq -r '[.guard, .final_stock] | @tsv'
  go run ./lab all --html lab.html                     # ten minutes; three stories need root

The exit status is 0 if dlock held as its documents promise and every wrong way to lock was
caught, 1 if not or if an experiment failed, and 2 for wrong usage.

Flags:
`

func main() {
	// A closed stdout is an error: the program stops its servers, and removes its files.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err, ok := child.Run(roles()); ok {
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	exit(start(ctx, os.Args[1:], os.Stdout))
}

// roles are the main functions of processes.
func roles() map[string]func(task []byte) error {
	all := maps.Clone(stories.Programs)
	maps.Copy(all, soakRoles)
	all[stage.Role] = stage.Work
	return all
}

// usageError says that the command line is wrong.
type usageError struct{ error }

func usagef(format string, values ...any) error { return usageError{fmt.Errorf(format, values...)} }

func exit(err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "lab: interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, "lab:", err)
	if errors.As(err, new(usageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

func start(ctx context.Context, args []string, out io.Writer) error {
	first := "list"
	if len(args) > 0 {
		first = args[0]
	}
	switch first {
	case "list":
		return list(out)
	case "help":
		return run(ctx, []string{"--help"}, out)
	case "draw":
		return draw(args[1:])
	case "soak":
		return runSoak(ctx, args[1:])
	}
	return run(ctx, args, out)
}

// list lists the stories, those without a server first.
func list(out io.Writer) error {
	var b strings.Builder
	section := func(title string, guarded bool) {
		fmt.Fprintf(&b, "%s\n\n", title)
		for _, story := range stories.All {
			if (len(story.Guards) > 0) != guarded {
				continue
			}
			fmt.Fprintf(&b, "%2d  %-24s %s\n", story.Number, story.Name, story.Title)
			for _, place := range append(story.On, stories.Place{Cases: story.Guards}) {
				var names []string
				for _, c := range place.Cases {
					names = append(names, c.Subject)
				}
				if len(names) > 0 {
					fmt.Fprintf(&b, "    %-24s %s\n", "", strings.Join(names, ", "))
				}
			}
		}
	}
	section("Stories on a file, or on the store that --store names:", true)
	section("\nStories on servers, which the laboratory starts (on Linux):", false)
	b.WriteString("\ngo run ./lab NAME plays one. go run ./lab --help says more.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// run plays the stories that are named on the command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	files := outputFlags(flags)
	p := player{out: out}
	only := flags.String("store", "", "comma-separated `stores` to play on, or the URL of one that exists, for oversell, token and pause")
	flags.BoolVar(&p.json, "json", false, "one JSON object a line for each result")
	flags.Uint64Var(&p.seed, "seed", 1, "varies the waits of the experiments a little")
	p.options.Flags(flags)
	names, err := parse(flags, usage, args)
	if err != nil || names == nil {
		return err
	}
	if strings.Contains(*only, "://") {
		p.options.Store = *only
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" {
			err = usagef("--%s is empty", f.Name)
		}
	})
	if err == nil {
		p.jobs, err = choose(names, *only)
	}
	if err == nil {
		err = p.check()
	}
	if err == nil {
		err = files.check()
	}
	if err != nil {
		return usageError{errors.New(p.options.Clean(err.Error()))}
	}
	results, err := p.playAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, files.write(results))
}

// draw writes the page and the documents from results that were written before.
func draw(args []string) error {
	flags := flag.NewFlagSet("draw", flag.ContinueOnError)
	files := outputFlags(flags)
	names, err := parse(flags, "go run ./lab draw FILE [FLAGS]\n", args)
	if err != nil || names == nil {
		return err
	}
	if len(names) != 1 {
		return usagef("name the file that --save wrote")
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		return err
	}
	var results []*stage.Result
	if err := json.Unmarshal(text, &results); err != nil {
		return fmt.Errorf("%s: %w", names[0], err)
	}
	return files.write(results)
}

// parse accepts flags before, between and after the names. It returns nil if help was wanted, and shown.
func parse(flags *flag.FlagSet, usage string, args []string) (names []string, err error) {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	for names = []string{}; ; {
		err := flags.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Print(usage)
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
			return nil, nil
		case err != nil:
			return nil, usageError{err}
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
		return nil, errors.New("name a story, or all: go run ./lab lists them")
	}
	var known []string
	for _, story := range stories.All {
		known = append(known, story.Name)
		if slices.Contains(names, "all") || slices.Contains(names, story.Name) {
			for _, place := range story.Places(only) {
				jobs = append(jobs, job{story, place})
			}
		}
	}
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("no story is called %q: go run ./lab lists them", name)
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("none of these stories is played on %s: go run ./lab lists the stores", only)
	}
	return jobs, nil
}
