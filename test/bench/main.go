// Command bench measures dlock against the floor and against its peers.
//
//	go run ./test/bench [--only memory,sqlite,redis,memcached,mysql,postgres,etcd,zookeeper] [--time 3s] [--growth]
//		[--json FILE] [--html FILE] [--docs DIR]
//
// --html writes one page with charts that needs no other file. --docs writes the
// tables and pictures of performance.md into the folder of documents. --from FILE
// writes them again from the results that --json wrote, and measures nothing.
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
// Java's Curator, on ZooKeeper, and Redisson, on Redis, are built with Maven, and skipped
// where Maven is missing.
//
// The cases readers and permits measure shared locks and semaphores. There the variant
// /exclusive of dlock takes exclusive locks.
//
// The case exec runs commands: true alone, under dlock exec, and under flock or
// etcdctl lock. A curve of growth is a case of its own, as redis/grow-crowd, which
// --growth adds.
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
	grow := flag.Bool("growth", false, "measure curves of growth, too; on memory, sqlite and redis unless --only names stores")
	from := flag.String("from", "", "measure nothing; read the results from this file of --json")
	var out outputs
	flag.StringVar(&out.json, "json", "", "write the results to this file, one JSON object a line")
	flag.StringVar(&out.html, "html", "", "write a page with charts to this file")
	flag.StringVar(&out.docs, "docs", "", "write the tables and pictures of performance.md in this folder")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *window <= 0 {
		return fmt.Errorf("--time %v is not positive", *window)
	}
	if *from != "" {
		return out.again(*from)
	}
	selected, err := selection(*only, *grow)
	if err != nil {
		return err
	}
	return out.measure(ctx, selected, *window)
}

// outputs are the files to write. An empty name means none.
type outputs struct{ json, html, docs string }

// measure runs the cases and writes the files, also those of a run that failed in
// part.
func (o outputs) measure(ctx context.Context, selected []job, window time.Duration) error {
	var lines io.Writer = io.Discard
	if o.json != "" {
		file, err := os.Create(o.json)
		if err != nil {
			return err
		}
		defer file.Close()
		lines = file
	}
	start := time.Now()
	results, err := runAll(ctx, selected, window, lines)
	about := fmt.Sprintf("Measured on %s in %v with --time %v, on %s.", start.UTC().Format("2 January 2006"),
		time.Since(start).Round(time.Second), window, machine())
	return errors.Join(err, o.write(results, about))
}

// again writes the page and the documents from results that were written before.
func (o outputs) again(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	results, err := readJSON(file)
	if err != nil {
		return fmt.Errorf("--from %s: %w", path, err)
	}
	return o.write(results, "Drawn from "+path+".")
}

func (o outputs) write(results []result, about string) error {
	if o.html != "" {
		file, err := os.Create(o.html)
		if err != nil {
			return err
		}
		if err := errors.Join(presented(results, about).Write(file), file.Close()); err != nil {
			return err
		}
	}
	if o.docs != "" {
		return writeDocs(o.docs, results)
	}
	return nil
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
		if len(results) == 0 && err != nil { // the servers did not start, for example
			results = []result{{kase: j.name(), subject: "every subject", failure: err.Error()}}
		}
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
