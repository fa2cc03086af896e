// Package soak lets processes lock for a long time while faults happen at random, and compares
// what they did with what dlock promises.
package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/lab/child"
)

// Config says what to soak.
type Config struct {
	Store    string
	Time     time.Duration
	Seed     uint64   // decides the faults, but not the scheduling
	Faults   []string // those to choose from; all that the store must bear if it is nil
	Pictures string   // the folder for pictures of violations
	// Every is the longest time between two faults of a process. The default is half a second
	// for each process.
	Every time.Duration
	// Pace is the longest pause of the goroutines that lock most often. The default is a
	// millisecond.
	Pace time.Duration
	// Progress is called now and then. The soak ends if it returns false.
	Progress func(Status) bool
}

// Status is how far a soak is.
type Status struct {
	Counts
	Elapsed    time.Duration
	Unchecked  int    // acquisitions
	Memory     uint64 // of the program itself, in bytes
	Violations int
}

// Result is the outcome of a soak.
type Result struct {
	Store      string        `json:"store"`
	Seed       uint64        `json:"seed"`
	Time       time.Duration `json:"time"` // in which processes locked
	Counts     Counts        `json:"counts"`
	Violations []Violation   `json:"violations"`
	Grown      []string      `json:"grown"` // what is not as it was at the start
	Start      Measure       `json:"start"` // of a process that lived from the start to the end
	End        Measure       `json:"end"`
	Entries    [2]int        `json:"entries"` // of the store at the start and at the end
	Wake       time.Duration `json:"wake"`    // from a release to the next acquisition, while another process waits; median
	Wakes      int           `json:"wakes"`
	Memory     uint64        `json:"memory"` // the most that the program itself needed, in bytes
}

// OK reports whether dlock kept its promises.
func (r *Result) OK() bool { return len(r.Violations) == 0 && len(r.Grown) == 0 }

// soak is a soak under way.
type soak struct {
	Config
	store   store
	faults  []string
	place   *place
	record  *record
	checker checker
	log     child.Log
	result  *Result
}

// Run soaks a store until the time is over, ctx ends or a violation is found. It returns an
// error if the soak itself failed.
func Run(ctx context.Context, c Config) (*Result, error) {
	st, err := storeNamed(c.Store)
	if err != nil {
		return nil, err
	}
	s := &soak{Config: c, store: st, faults: st.faults, record: newRecord(), result: &Result{Store: c.Store, Seed: c.Seed}}
	if c.Faults != nil {
		s.faults = c.Faults
	}
	s.checker = checker{record: s.record, file: pictureFile(c.Pictures, c.Store, c.Seed), woken: make(map[string][]time.Duration)}
	if s.place, err = st.start(); err != nil {
		return nil, err
	}
	err = s.run(ctx)
	if stopErr := s.place.Stop(); stopErr != nil {
		err = errors.Join(err, stopErr)
	}
	return s.result, s.log.Explain(err)
}

func (s *soak) run(ctx context.Context) error {
	if err := s.visit(ctx, 0); err != nil {
		return err
	}
	began := time.Now()
	disturbed, end := context.WithTimeout(ctx, s.Time)
	defer end()
	processes, err := s.startAll()
	if err == nil {
		err = s.harm(disturbed, end, processes)
	}
	s.result.Time = time.Since(began)
	err = errors.Join(err, s.stopAll(processes))
	_, checkErr := s.check(began)
	err = errors.Join(err, checkErr)
	s.result.Violations = append(s.result.Violations, s.checker.lateWakes()...)
	s.result.Wake, s.result.Wakes = s.checker.medianWake(wakeNames[0]), len(s.checker.woken[wakeNames[0]])
	if err == nil && len(s.result.Violations) == 0 {
		err = s.visit(context.WithoutCancel(ctx), 1)
	}
	s.result.Counts, _ = s.record.snapshot()
	if err == nil && ctx.Err() == nil && s.result.Counts.Acquired == 0 {
		err = errors.New("no process acquired a lock")
	}
	return err
}

func (s *soak) startAll() (processes []*process, err error) {
	for i := range s.store.processes {
		p, err := newProcess(job{Role: Role, Process: i, Clients: s.store.clients, TTL: s.store.ttl, Pace: cmp.Or(s.Pace, time.Millisecond)}, s.place, s.record, &s.log)
		if err != nil {
			return processes, err
		}
		processes = append(processes, p)
	}
	return processes, nil
}

// harm causes faults until ctx ends, and checks what happens meanwhile. end ends ctx.
func (s *soak) harm(ctx context.Context, end func(), processes []*process) error {
	var work sync.WaitGroup
	errs := make([]error, len(processes)+1)
	loop := func(i int, p *process) {
		work.Go(func() {
			if errs[i] = s.disturb(ctx, p, rand.New(rand.NewPCG(s.Seed, uint64(i)))); errs[i] != nil {
				end()
			}
		})
	}
	for i, p := range processes {
		loop(i, p)
	}
	loop(len(processes), nil)
	began := time.Now()
	var err error
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
		var goOn bool
		if goOn, err = s.check(began); err != nil || !goOn {
			end()
		}
	}
	work.Wait()
	return errors.Join(err, errors.Join(errs...))
}

// check checks what is complete, and reports the progress. goOn is false after a violation, or if
// Progress says so.
func (s *soak) check(began time.Time) (goOn bool, err error) {
	found, err := s.checker.check()
	s.result.Violations = append(s.result.Violations, found...)
	s.result.Memory = max(s.result.Memory, memory())
	goOn = len(s.result.Violations) == 0
	if s.Progress != nil {
		counts, unchecked := s.record.snapshot()
		goOn = s.Progress(Status{Counts: counts, Elapsed: time.Since(began), Unchecked: unchecked, Memory: memory(), Violations: len(s.result.Violations)}) && goOn
	}
	return goOn, err
}

// stopAll ends the processes, and compares the first one with its start.
func (s *soak) stopAll(processes []*process) error {
	var work sync.WaitGroup
	errs := make([]error, len(processes))
	for i, p := range processes {
		work.Go(func() {
			var measures []Measure
			if measures, errs[i] = p.stop(); i == 0 && len(measures) == 2 {
				s.result.Start, s.result.End = measures[0], measures[1]
				for _, what := range measures[1].growth(measures[0], len(s.place.Addrs)) {
					s.result.Grown = append(s.result.Grown, fmt.Sprintf("%s of a process: at first %v, at the end %v", what, measures[0], measures[1]))
				}
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// modes returns how each name is used.
func modes(traits driver.Traits, ttl time.Duration) map[string]duty {
	all := make(map[string]duty)
	for _, d := range duties(traits, ttl, 0) {
		for _, name := range d.names {
			all[name] = d
		}
	}
	return all
}
