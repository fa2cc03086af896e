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
	"slices"
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
	only := flag.String("only", "", "comma-separated stores or cases, as memory,sqlite/solo,crowd; default all")
	window := flag.Duration("time", 3*time.Second, "how long each subject of a case is measured, over all rounds")
	jsonFile := flag.String("json", "", "write the results to this file, one JSON object a line")
	grow := flag.Bool("growth", false, "measure curves of growth, too; on memory, sqlite and redis unless --only names stores")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *window <= 0 {
		return fmt.Errorf("--time %v is not positive", *window)
	}
	selected, err := selection(*only, *grow)
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
	_, err = runAll(ctx, selected, *window, lines)
	return err
}

// runAll continues after a case that failed, so that one broken subject does not
// hide the others. It returns the results and an error in the end.
func runAll(ctx context.Context, selected []job, window time.Duration, lines io.Writer) (all []result, err error) {
	var failures []error
	var venue venue
	defer func() { err = errors.Join(err, venue.close(), subjects.RemoveCommand()) }()
	for i, j := range selected {
		progress("%s (%d of %d)", j.name(), i+1, len(selected))
		results, err := venue.run(ctx, j, window)
		all = append(all, results...)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", j.name(), err))
			if ctx.Err() != nil {
				break
			}
		}
		if err := printTable(os.Stdout, results); err != nil {
			return all, err
		}
		if err := printJSON(lines, results); err != nil {
			return all, err
		}
	}
	return all, errors.Join(failures...)
}

// progress reports to a reader of a long run what is measured now.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// venue keeps the servers of a store for its next case.
type venue struct {
	store   string
	servers subjects.Served // nil if there are none
}

// run runs a case on the servers that it needs.
func (v *venue) run(ctx context.Context, j job, window time.Duration) ([]result, error) {
	if v.store != j.store.Name {
		if err := v.close(); err != nil {
			return nil, err
		}
	}
	if v.servers == nil && j.store.Serve != nil {
		servers, err := j.store.Serve(ctx)
		if err != nil {
			return nil, err
		}
		v.servers = servers
	}
	v.store = j.store.Name
	results, err := j.run(ctx, v.servers, window)
	if err != nil {
		err = errors.Join(err, v.close()) // a failure may have left the servers in any state
	}
	return results, err
}

func (v *venue) close() error {
	servers := v.servers
	*v = venue{}
	if servers == nil {
		return nil
	}
	return servers.Stop()
}

// job is a case on a store.
type job struct {
	store subjects.Store
	kind  kind
}

func (j job) name() string { return j.store.Name + "/" + j.kind.name }

// selection returns the jobs that match one of the comma-separated patterns: a
// store, a case, or the name of a case for all stores. The jobs of a store follow
// each other. With grow there are curves of growth, too.
func selection(only string, grow bool) ([]job, error) {
	curved := growthStores
	var selected []job
	if only == "" {
		selected = jobs(kinds)
	} else {
		var stores []string
		for pattern := range strings.SplitSeq(only, ",") {
			found := false
			for _, j := range jobs(append(slices.Clone(kinds), growth...)) {
				named := pattern == j.store.Name && j.kind.points == nil
				if named || pattern == j.name() || pattern == j.kind.name {
					selected, found = append(selected, j), true
				}
				if named {
					stores = append(stores, pattern)
				}
			}
			if !found {
				return nil, fmt.Errorf("--only %s: nothing to measure; there are the stores %s, each with cases like %s/%s",
					pattern, strings.Join(storeNames(), ", "), storeNames()[0], kinds[0].name)
			}
		}
		if stores != nil {
			curved = stores
		}
	}
	if grow {
		for _, j := range jobs(growth) {
			if slices.Contains(curved, j.store.Name) {
				selected = append(selected, j)
			}
		}
	}
	var order []string
	for _, j := range selected {
		order = append(order, j.store.Name)
	}
	slices.SortStableFunc(selected, func(a, b job) int {
		return slices.Index(order, a.store.Name) - slices.Index(order, b.store.Name)
	})
	return selected, nil
}

// jobs returns the cases of these kinds on all stores.
func jobs(of []kind) (all []job) {
	for _, s := range subjects.Stores {
		for _, k := range of {
			if j := (job{s, k}); len(j.subjects()) > 0 {
				all = append(all, j)
			}
		}
	}
	return all
}

func storeNames() (names []string) {
	for _, s := range subjects.Stores {
		names = append(names, s.Name)
	}
	return names
}
