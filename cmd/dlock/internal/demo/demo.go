// Package demo runs the demos of the command line: scenarios that go wrong without a lock,
// with real processes and real servers, and then once more with one.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
	"github.com/dlock-go/dlock/sqllock"
)

// UsageError is an error in the options of a demo.
type UsageError struct{ error }

func usagef(format string, values ...any) error { return UsageError{fmt.Errorf(format, values...)} }

// ResultError says that a demo went wrong with a lock too.
type ResultError struct{ error }

// Stage is what the demos share: their places and their output.
type Stage struct {
	Stdout, Stderr *os.File
	Folder         string // temporary
	Store          Store
	Database       string // the URL of --db; empty: an SQLite file in Folder
	JSON           bool
	HTML, SVG      string // the files to write; empty: none

	database  string // its name, for people
	table     terminal.Table
	runs      []timeline.Run
	html, svg outputFile
}

// Open finds out before the demo whether its files can be written.
func (s *Stage) Open() error { return errors.Join(s.html.open(s.HTML), s.svg.open(s.SVG)) }

// Close closes the files.
func (s *Stage) Close() {
	s.html.close()
	s.svg.close()
}

// note writes a line to stderr. The values contain no secrets.
func (s *Stage) note(format string, values ...any) {
	fmt.Fprintln(s.Stderr, terminal.Escape(fmt.Sprintf(format, values...)))
}

func (s *Stage) add(run timeline.Run, value any, row ...any) error {
	s.runs = append(s.runs, run)
	var cells []string
	for _, cell := range row {
		cells = append(cells, fmt.Sprint(cell))
	}
	s.table.Add(cells...)
	if !s.JSON {
		return nil
	}
	return terminal.PrintJSON(s.Stdout, value)
}

// finish prints the table and writes the files. The page colours the first column that wants a
// value. If the outcome is not good, finish returns what should have happened.
func (s *Stage) finish(good bool, should, title string, intro ...string) error {
	if !s.JSON {
		if err := s.table.Print(s.Stdout, terminal.PainterFor(s.Stdout)); err != nil {
			return err
		}
	}
	page := timeline.Page{Title: title, Intro: intro, Table: s.table.Rows, Runs: s.runs}
	page.Marked = slices.IndexFunc(s.table.Columns, func(c terminal.Column) bool { return c.Want != "" })
	for _, column := range s.table.Columns {
		page.Header = append(page.Header, strings.ToLower(column.Title))
	}
	if err := s.svg.write(timeline.SVG(s.runs)); err != nil {
		return err
	}
	if err := s.html.write(timeline.HTML(page)); err != nil || good {
		return err
	}
	return ResultError{errors.New(should)}
}

// processLog is what a process of a demo has done. Times are Unix nanoseconds.
type processLog struct {
	Visits []visit
	Falls  []int64 // when the curve of the drawing fell by one
	Ended  int64   // if that is after the last visit
}

type visit struct {
	From, To int64
	What     string // happened
}

var guardCaptions = map[Guard]string{
	None:   "no lock",
	Local:  "a mutex in\neach process",
	Dlock:  "one lock for\nall processes",
	Fenced: "the same, and the\nrow checks its token",
}

// draw returns the drawing of a run. Its time begins with the first visit.
func draw(guard Guard, logs []processLog) timeline.Run {
	run := timeline.Run{Name: string(guard), Caption: guardCaptions[guard], Of: "in stock"}
	begin := int64(math.MaxInt64)
	for _, log := range logs {
		for _, v := range log.Visits {
			begin = min(begin, v.From)
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - begin) }
	for lane, log := range logs {
		process := fmt.Sprintf("process %d", lane+1)
		run.Lanes = append(run.Lanes, process)
		run.Length = max(run.Length, since(log.Ended))
		for _, v := range log.Visits {
			from, to := since(v.From), since(v.To)
			label := fmt.Sprintf("%s, %.3f s to %.3f s, %s", process, from.Seconds(), to.Seconds(), v.What)
			run.Spans = append(run.Spans, timeline.Span{Lane: lane, From: from, To: to, Label: label})
			run.Length = max(run.Length, to)
		}
		for _, at := range log.Falls {
			run.Sales = append(run.Sales, since(at))
		}
	}
	slices.Sort(run.Sales)
	return run
}

// The locks of the demos. They are always the same, because some stores keep the names of locks.
const (
	OversellLock = "dlock-demo/oversell/product/1"
	PauseLock    = "dlock-demo/pause/product/1"
	TokenLock    = "dlock-demo/token"
)

// The argv[0] of the child processes.
const (
	shopRole  = "dlock-demo-shop"
	userRole  = "dlock-demo-user"
	buyerRole = "dlock-demo-buyer"
)

var processes = map[string]func(*child.Parent) error{
	shopRole:  runShop,
	userRole:  runUser,
	buyerRole: runBuyer,
}

// RunProcess runs a child process of a demo if args are those of one. Otherwise ok is false.
// The process ignores stop signals, so that it releases its locks when its stdin ends.
func RunProcess(args []string) (status int, ok bool) {
	if len(args) != 1 || processes[args[0]] == nil {
		return 0, false
	}
	signal.Ignore(supervise.StopSignals...)
	err := processes[args[0]](child.Attach(os.Stdin, os.Stdout))
	if err == nil || errors.Is(err, child.ErrEnd) {
		return 0, true
	}
	fmt.Fprintln(os.Stderr, err) // for the parent
	return 1, true
}

// columns returns the columns of a table. The cells of "TITLE=X" should be X.
func columns(titles ...string) (all []terminal.Column) {
	for i, title := range titles {
		title, want, _ := strings.Cut(title, "=")
		all = append(all, terminal.Column{Title: title, Right: i > 0, Want: want})
	}
	return all
}

// outputFile is a file that is written at the end. Without a path it does nothing.
type outputFile struct {
	file    *os.File // keeps a pipe open until the end
	created bool     // it did not exist before, and is not written yet
}

// open opens the file. Its content stays until write.
func (o *outputFile) open(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Lstat(path)
	o.created = errors.Is(err, fs.ErrNotExist)
	if o.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
		return usagef("cannot write the file: %w", err)
	}
	return nil
}

func (o *outputFile) write(text string) error {
	if o.file == nil {
		return nil
	}
	o.created = false
	if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() { // a pipe may have lost its reader
		if err := o.file.Truncate(0); err != nil {
			return terminal.OutputError(err)
		}
	}
	return terminal.Print(o.file, text)
}

// close removes a file that was created and not written.
func (o *outputFile) close() {
	if o.file != nil {
		o.file.Close()
		if o.created {
			_ = os.Remove(o.file.Name())
		}
	}
}

// Store is where the processes of a demo keep their locks.
type Store struct {
	URL  string // of --store or the environment; may contain a password
	File string // the SQLite file if there is no URL
	Name string // for people

	MinTTL time.Duration // the shortest that it grants
}

// lockTTL is short: a memcached that has just started grants no lock for one TTL.
const lockTTL = 10 * time.Second

// client opens the store in a process of a demo. The second result closes it.
func (s Store) client(ctx context.Context) (*dlock.Client, func(), error) {
	store, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	traits := store.Driver.Traits()
	ttl := min(max(lockTTL, traits.MinTTL), traits.LongestTTL())
	client := dlock.New(store.Driver, &dlock.Options{TTL: ttl, RequestTimeout: ttl}) // the machine may be busy
	return client, func() {
		_ = client.Close() // a lock that cannot be released expires
		_ = store.Close()
	}, nil
}

func (s Store) open(ctx context.Context) (*stores.Store, error) {
	if s.URL != "" {
		return stores.Open(ctx, s.URL)
	}
	// These locks need not survive a power failure, and do not wait for the disk.
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(s.File)+"&_pragma=synchronous(OFF)")
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &stores.Store{Driver: store, CloseMore: db.Close}, nil
}
