//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/soak"
)

const soakUsage = `go run ./lab soak --store STORE|all [FLAGS]
go run ./lab soak --spoiled

A soak lets processes lock for long while faults happen at random, and checks all that they did. The exit
status is 0 if dlock kept its promises. --spoiled makes mistakes in a copy of dlock: the exit status
is 0 if a soak finds each of them.

Flags:
`

// soakRoles are the processes of a soak.
var soakRoles = map[string]func(task []byte) error{soak.Role: soak.Work}

// What a soak of twenty minutes is meant to reach.
const (
	wantedAcquired = 1_000_000
	wantedFaults   = 1000
	wantedTime     = 20 * time.Minute
)

// runSoak soaks stores one after the other.
func runSoak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	names := flags.String("store", "", "comma-separated stores, or all: "+strings.Join(soak.Stores(), ", "))
	length := flags.Duration("time", 10*time.Minute, "how long processes lock, on each store")
	seed := flags.Uint64("seed", 0, "decides the faults; 0 takes any")
	faults := flags.String("faults", "", "comma-separated `faults`; default all that the store must bear")
	every := flags.Duration("every", 0, "the longest time between two faults of a process; default half a second for each process")
	pace := flags.Duration("pace", 0, "the longest pause of the goroutines that lock most often; default 1ms")
	enough := flags.Bool("enough", false, fmt.Sprintf("end each soak early, after %d acquisitions and %d faults", wantedAcquired, wantedFaults))
	file := flags.String("save", "", "write the results to `FILE`, as JSON")
	docs := flags.String("docs", "", "write a row for each store into the table of soak.md in this folder")
	pictures := flags.String("pictures", ".", "the folder for pictures of violations")
	only := flags.String("only", "", "with --spoiled: only the mistakes whose rule contains this `text`")
	spoiled := flags.Bool("spoiled", false, "make mistakes in a copy of dlock, and find each within a minute")
	rest, err := parse(flags, soakUsage, args)
	if err != nil || rest == nil {
		return err
	} else if len(rest) > 0 {
		return usagef("unknown argument %q", rest[0])
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	if *spoiled {
		return soakSpoiled(ctx, *only, *seed)
	}
	list, err := soakStores(*names)
	if err != nil {
		return err
	}
	var results []*soak.Result
	var failed []string
	for _, name := range list {
		c := soak.Config{Store: name, Time: *length, Seed: *seed, Every: *every, Pace: *pace, Pictures: *pictures, Progress: progress(name, *enough)}
		if *faults != "" {
			c.Faults = strings.Split(*faults, ",")
		} else {
			c.Faults = soak.Faults(name)
		}
		fmt.Fprintf(os.Stderr, "%s: seed %d, for %v: %s\n", name, *seed, *length, strings.Join(c.Faults, ", "))
		result, err := soak.Run(ctx, c)
		if err != nil {
			return errors.Join(fmt.Errorf("the soak of %s failed: %w", name, err), writeJSON(*file, results))
		}
		results = append(results, result)
		if fmt.Fprint(os.Stderr, verdict(result)); !result.OK() {
			failed = append(failed, name)
		}
		if *docs != "" {
			if err := writeSoakRow(filepath.Join(*docs, "soak.md"), result); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	err = writeJSON(*file, results)
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("dlock did not keep its promises on %s (again: --seed %d)", strings.Join(failed, ", "), *seed))
	}
	return err
}

func soakStores(names string) ([]string, error) {
	switch names {
	case "":
		return nil, usagef("name a store with --store: all or %s", strings.Join(soak.Stores(), ", "))
	case "all":
		return soak.Stores(), nil
	}
	list := strings.Split(names, ",")
	for _, name := range list {
		if soak.Faults(name) == nil {
			return nil, usagef("unknown store %q (want all or %s)", name, strings.Join(soak.Stores(), ", "))
		}
	}
	return list, nil
}

func writeJSON(file string, results []*soak.Result) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", " ")
	return errors.Join(err, os.WriteFile(file, append(text, '\n'), 0o644))
}

// progress prints a line every ten seconds or, on a terminal, changes a line every second. If
// enough is set, it ends the soak when the goals are reached.
func progress(name string, enough bool) func(soak.Status) bool {
	info, err := os.Stderr.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	last := time.Now()
	return func(s soak.Status) bool {
		goOn := !enough || s.Acquired < wantedAcquired || sum(s.Faults) < wantedFaults
		if !terminal && time.Since(last) < 10*time.Second {
			return goOn
		}
		last = time.Now()
		text := fmt.Sprintf("%s: %v, %d acquired (%.0f/s), %d faults, %d lost, %d not checked yet, %d MB, %d violations",
			name, s.Elapsed.Round(time.Second), s.Acquired, float64(s.Acquired)/s.Elapsed.Seconds(), sum(s.Faults), s.Lost, s.Unchecked, s.Memory>>20, s.Violations)
		if terminal {
			fmt.Fprintf(os.Stderr, "\r\x1b[K%s", text)
		} else {
			fmt.Fprintln(os.Stderr, text)
		}
		return goOn
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// verdict describes a result.
func verdict(r *soak.Result) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+"\n", args...) }
	word := "held"
	if !r.OK() {
		word = "FAILED"
	}
	fmt.Fprintf(&b, "\r%s: %s, seed %d\n", r.Store, word, r.Seed)
	say("%d acquisitions in %v, %d checked in %d windows: %v", r.Counts.Acquired, r.Time.Round(time.Second), r.Counts.Checked, r.Counts.Windows, r.Counts.Modes)
	say("%d faults: %v", sum(r.Counts.Faults), r.Counts.Faults)
	say("%d leases lost, %d with an unknown end, %d calls of Lock failed", r.Counts.Lost, r.Counts.Unknown, r.Counts.Failed)
	say("a released lock that another process waited for was acquired after %v (median of %d)", r.Wake.Round(10*time.Microsecond), r.Wakes)
	say("a process at first: %v; at the end: %v", r.Start, r.End)
	say("entries in the store: %d, at the end %d; memory of the checker: %d MB", r.Entries[0], r.Entries[1], r.Memory>>20)
	for _, v := range r.Violations {
		say("VIOLATION %v", v)
	}
	for _, what := range r.Grown {
		say("NOT FLAT %s", what)
	}
	return b.String()
}
