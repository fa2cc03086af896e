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
// rounds; figures.go explains them. In the cases solo and many, all subjects of a
// round are open at once and run alternately in slices of a fraction of a second.
// Subjects:
//
//	raw    the floor: the simplest commands that lock, with no token and no
//	       wake-up; waiters poll
//	bare   the commands of dlock's protocol, without the library around them;
//	       waiters poll
//	store  the store, called without the library around it
//	dlock  the library
//
// and other libraries by their names. Variants of Redis are dlock's other protocol
// (/plain), go-redis's client that collects commands (/pipelined), and five
// independent servers (/redlock). On SQL servers raw is the two prepared statements
// of the row scheme; variants are dlock's other schemes (/version, /session,
// /forupdate), and there are the server's own locks (get_lock, advisory), with a
// connection for each goroutine, on which it waits. Java's Curator and Redisson are
// built with Maven, and skipped where Maven is missing. In the cases readers and
// permits, which measure shared locks and semaphores, /exclusive takes exclusive
// locks.
//
// The case exec runs commands: true alone, under dlock exec, and under flock or
// etcdctl lock. A curve of growth is a case of its own, as redis/grow-crowd, which
// --growth adds.
//
// Exclusion is checked before and while a subject is measured; a subject that
// breaks it fails the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
	"github.com/dlock-go/dlock/test/harness/command"
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
		results, err := readJSON(*from)
		if err != nil {
			return fmt.Errorf("--from %s: %w", *from, err)
		}
		return out.write(results, "Drawn from "+*from+".")
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

func (o outputs) write(results collection, about string) error {
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
// hide the others. It returns the results and an error in the end. The cases of a
// store share its servers.
func runAll(ctx context.Context, selected []job, window time.Duration, lines io.Writer) (all collection, err error) {
	var servers *subjects.Servers // nil if there are none
	stop := func() {
		err = errors.Join(err, servers.Stop())
		servers = nil
	}
	defer func() {
		stop()
		command.Remove()
	}()
	for i, j := range selected {
		progress("%s (%d of %d)", j.name(), i+1, len(selected))
		if i > 0 && selected[i-1].store.Name != j.store.Name {
			stop()
		}
		var failed error
		if servers == nil && j.store.Serve != nil {
			servers, failed = j.store.Serve(ctx)
		}
		var results collection
		if failed == nil {
			results, failed = j.run(ctx, servers, window)
		}
		if len(results) == 0 {
			results = collection{{kase: j.name(), subject: "every subject", failure: fmt.Sprint(failed)}}
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", j.name(), failed))
			stop() // a failure may have left the servers in any state
		}
		all = append(all, results...)
		err = errors.Join(err, results.printTable(os.Stdout), results.printJSON(lines))
		if ctx.Err() != nil {
			break
		}
	}
	return all, err
}

// progress reports to a reader of a long run what is measured now.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
