// Package stories holds the experiments: how distributed locks fail, told in steps
// that are the same for every way to lock.
package stories

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/subject"
)

// Story is an experiment.
type Story struct {
	Number int
	Name   string // for the command line
	Title  string
	Tells  string // what happens, for a reader who has never heard of it
	TTL    time.Duration
	On     []Place // the servers that the laboratory starts
	Guards []Case  // without On: the story is played on any store, in a file if none is named
	Play   func(s *stage.Stage)
}

// Place is a store on which a story is played.
type Place struct {
	Store string
	Start func() (*stage.Server, error)
	Cases []Case
}

// Case is a subject, and the verdicts that it must have. A peer has none: whatever
// happens is reported.
type Case struct {
	Subject string
	Expect  []stage.Verdict
}

// All are the stories in order.
var All = slices.Concat(onServers, []Story{oversell, token, pausedHolder})

// Programs are the processes of stories that execute no orders, by role.
var Programs = map[string]func(task []byte) error{
	"shop": stage.Program(runShop),
	"user": stage.Program(runUser),
}

// Places returns where to play the story. store is the URL of a store that exists, a list of stores to
// start, or empty.
func (s Story) Places(store string) (places []Place) {
	if len(s.Guards) == 0 {
		for _, place := range s.On {
			if store == "" || slices.Contains(strings.Split(store, ","), place.Store) {
				places = append(places, place)
			}
		}
		return places
	}
	if strings.Contains(store, "://") {
		given := func() (*stage.Server, error) { return at(store, func() error { return nil }), nil }
		return []Place{{"the given store", usable(given), s.Guards}}
	}
	for name := range strings.SplitSeq(cmp.Or(store, "sqlite"), ",") {
		if start := startStores[name]; start != nil {
			places = append(places, Place{name, usable(start), s.Guards})
		} else if name == "sqlite" {
			places = append(places, Place{name, usable(startFile), s.Guards})
		}
	}
	return places
}

// Starts reports whether a store of the stories with guards is a server that the laboratory starts.
func Starts(store string) bool { return startStores[store] != nil }

// at returns the store with a URL.
func at(url string, stop func() error) *stage.Server {
	return &stage.Server{URL: func([]string) string { return url }, Stop: stop}
}

// startFile makes a store in a temporary folder, which needs no server.
func startFile() (*stage.Server, error) {
	folder, err := os.MkdirTemp("", "dlock-lab-")
	return at("sqlite://"+filepath.ToSlash(filepath.Join(folder, "locks.db")), func() error { return os.RemoveAll(folder) }), err
}

// usable checks that a store can be used, and asks for the shortest TTL that it grants.
func usable(start func() (*stage.Server, error)) func() (*stage.Server, error) {
	return func() (*stage.Server, error) {
		server, err := start()
		if err != nil {
			return nil, err
		}
		store, err := subject.OpenStore(context.Background(), server.URL(server.Addrs))
		if err != nil {
			return nil, errors.Join(err, server.Stop())
		}
		server.MinTTL = store.Traits().MinTTL
		return server, store.Close()
	}
}

// ours is dlock, which must hold, or has the verdict that its documents announce.
func ours(store string, expect ...stage.Verdict) Case {
	if len(expect) == 0 {
		expect = []stage.Verdict{stage.Held}
	}
	return Case{subject.Dlock(store), expect}
}

// caught is a wrong way to lock, and the verdict in which its mistake shows.
func caught(name string, expect stage.Verdict) Case { return Case{name, []stage.Verdict{expect}} }

func peer(name string) Case { return Case{Subject: name} }

// turn lets a process lock, write and unlock. It is stuck if it does not get the lock.
func turn(p *stage.Process) {
	if p.Lock() {
		p.Deposit()
		p.Unlock()
	}
}

// serve lets a process that has begun to wait have its turn. It is stuck if it does not get the
// lock.
func serve(s *stage.Stage, p *stage.Process, granted func() bool) {
	if !granted() {
		s.Stuck(p.Name + " does not get the lock")
		return
	}
	p.Deposit()
	p.Unlock()
}

// retry lets a process lock whose library gives up when a server is not there. It is stuck if
// it does not get the lock.
func retry(s *stage.Stage, p *stage.Process) bool {
	for end := time.Now().Add(s.Patience); time.Now().Before(end); {
		if p.TryFor(5 * time.Second) {
			return true
		}
		s.Wait(100 * time.Millisecond)
	}
	s.Stuck(p.Name + " does not get the lock")
	return false
}

// writeBoth lets b, which has the lock, write, and then a, which may believe to have it.
func writeBoth(s *stage.Stage, a, b *stage.Process) {
	b.Deposit()
	s.Wait(100 * time.Millisecond) // what both believe is recorded
	if a.Holds() {
		a.WriteChecked()
	}
	b.Unlock()
}

// writeAfterPause lets a, whose lock b has got while it was paused, go on and write.
func writeAfterPause(s *stage.Stage, a, b *stage.Process) {
	b.Deposit()
	a.Resume()
	a.Write()
	s.Wait(s.TTL / 4)
	b.Deposit()
	b.Unlock()
}
