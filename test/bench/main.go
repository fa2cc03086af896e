// Command bench measures dlock against the floor and against its peers.
//
//	go run ./test/bench [--only memory,sqlite,redis,memcached,mysql,postgres,etcd,zookeeper] [--time 3s] [--json FILE]
//
// A case is STORE/NAME. Every subject of a case runs in turn within one run, in
// several rounds of changing order. The reported figures are the medians of the
// rounds. In the cases solo and many, all subjects of a round are open at once and
// run alternately in slices of a fraction of a second. Subjects:
//
//	raw    the floor: the simplest commands that lock, with no token and no
//	       wake-up; waiters poll
//	bare   the commands of dlock's protocol, without the library around them;
//	       waiters poll
//	store  the store, called without the library around it
//	dlock  the library
//
// and other libraries by their names. Variants of Redis:
//
//	/plain      dlock's other protocol
//	/pipelined  over go-redis's client that collects commands: AutoPipeline
//	/redlock    over five independent servers
//
// and of SQL servers, where raw is the two prepared statements of the row scheme:
//
//	/version, /session, /forupdate    dlock's other schemes
//	get_lock, advisory                the server's own locks, with a connection
//	                                  for each goroutine, on which it waits
//
// Java's Curator, on ZooKeeper, is built with Maven, and skipped where Maven is missing.
//
// Exclusion is checked before and while a subject is measured; a subject that
// breaks it fails the run. The figures are explained in figures.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) error {
	if assignment := os.Getenv(participantVariable); assignment != "" {
		return participate(ctx, assignment)
	}
	only := flag.String("only", "", "comma-separated stores or cases, as memory,sqlite/solo; default all")
	window := flag.Duration("time", 3*time.Second, "how long each subject of a case is measured, over all rounds")
	jsonFile := flag.String("json", "", "write the results to this file, one JSON object a line")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *window <= 0 {
		return fmt.Errorf("--time %v is not positive", *window)
	}
	selected, err := selection(*only)
	if err != nil {
		return err
	}
	var lines io.Writer = io.Discard
	if *jsonFile != "" {
		file, err := os.Create(*jsonFile)
		if err != nil {
			return err
		}
		defer file.Close()
		lines = file
	}
	return runAll(ctx, selected, *window, lines)
}

// runAll continues after a case that failed, so that one broken subject does not
// hide the others. It returns an error in the end.
func runAll(ctx context.Context, selected []job, window time.Duration, lines io.Writer) error {
	var failures []error
	for _, j := range selected {
		results, err := j.run(ctx, window)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", j.name(), err))
			if ctx.Err() != nil {
				break
			}
		}
		if err := printTable(os.Stdout, results); err != nil {
			return err
		}
		if err := printJSON(lines, results); err != nil {
			return err
		}
	}
	return errors.Join(failures...)
}

// job is a case on a store.
type job struct {
	store subjects.Store
	kind  kind
}

func (j job) name() string { return j.store.Name + "/" + j.kind.name }

// selection returns the jobs that match one of the comma-separated patterns.
func selection(only string) ([]job, error) {
	var all []job
	var known []string
	for _, s := range subjects.Stores {
		known = append(known, s.Name)
		for _, k := range kinds {
			all = append(all, job{s, k})
		}
	}
	if only == "" {
		return all, nil
	}
	var selected []job
	for pattern := range strings.SplitSeq(only, ",") {
		found := false
		for _, j := range all {
			if pattern == j.store.Name || pattern == j.name() {
				selected, found = append(selected, j), true
			}
		}
		if !found {
			return nil, fmt.Errorf("--only %s: nothing to measure; there are the stores %s, each with a case like %s",
				pattern, strings.Join(known, ", "), all[0].name())
		}
	}
	return selected, nil
}
