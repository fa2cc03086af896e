// Package stage runs an experiment: a few processes that lock, an account that they
// write, and the harm that is done to them. What happened is recorded and judged.
package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/subject"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

const (
	readyLimit  = time.Minute      // until a process is ready, on a busy machine
	answerLimit = 10 * time.Second // until a process answers
)

// Server is where the processes of an experiment lock.
type Server struct {
	// URL returns the URL of the servers at addrs, which are Addrs, or the proxies of a
	// process in front of them.
	URL   func(addrs []string) string
	Addrs []string // empty if processes find their servers without a proxy
	Stop  func() error
	Any   any // what the story started, for its harm

	MinTTL time.Duration // the shortest that the store grants; optional

	Network Network // where the processes of [Stage.ProcessInNetwork] run; optional
}

// Network is a network namespace of processes.
type Network interface {
	// Cut loses all packets in the given directions (default: both).
	Cut(directions ...proxy.Direction) error
	// Heal ends all cuts.
	Heal() error

	enter(command ...string) []string
}

// Connect puts a proxy in front of each address. It returns the URL of the servers behind the proxies.
func (s *Server) Connect() (proxies []*proxy.Proxy, url string, err error) {
	var addrs []string
	for _, addr := range s.Addrs {
		between, err := proxy.Start(addr)
		if err != nil {
			Disconnect(proxies)
			return nil, "", err
		}
		proxies, addrs = append(proxies, between), append(addrs, between.Addr())
	}
	return proxies, s.URL(addrs), nil
}

// Disconnect closes proxies.
func Disconnect(proxies []*proxy.Proxy) {
	for _, between := range proxies {
		between.Close()
	}
}

// Result is what an experiment showed about a subject.
type Result struct {
	Story    string        `json:"story"`
	Store    string        `json:"store"`
	Subject  string        `json:"subject"`
	Role     subject.Role  `json:"role"`
	Verdict  Verdict       `json:"verdict"`
	Expected []Verdict     `json:"expected,omitempty"` // empty for peers
	Account  Account       `json:"account"`
	Figures  []Figure      `json:"figures,omitempty"`
	Record   *Record       `json:"record"`
	Err      string        `json:"error,omitempty"` // the experiment itself failed
	Took     time.Duration `json:"took"`
}

// OK reports whether the verdict is what it has to be.
func (r *Result) OK() bool {
	if r.Err != "" {
		return false
	}
	return len(r.Expected) == 0 || slices.Contains(r.Expected, r.Verdict)
}

// Figure is a number that an experiment measured.
type Figure struct {
	Name  string `json:"name"` // for JSON
	Value any    `json:"value"`
	// Detail says that a table leaves the figure out.
	Detail bool `json:"detail,omitempty"`
}

// Experiment is what to play, with whom and where.
type Experiment struct {
	Subject subject.Subject
	Server  *Server
	Lock    string // the name of the lock; default LockName
	TTL     time.Duration
	Seed    uint64 // varies the waits a little
	Options Options
	Play    func(s *Stage)
}

// Stage is one experiment with one subject. Its methods, and those of its processes,
// end the play if the experiment itself fails.
type Stage struct {
	TTL      time.Duration
	Patience time.Duration // after which a process that waits is stuck
	FixedTTL bool          // the locks of processes that start from now on are not renewed
	Account  Account
	Row      func(token uint64) (accepted bool, err error) // what a write does besides writing the account; optional
	Server   *Server
	Options  Options

	ctx       context.Context
	lock      string
	subject   subject.Subject
	record    *Record
	processes []*Process
	stuck     bool
	herd      bool
	random    *rand.Rand
	log       child.Log
	figures   []Figure
	cleanups  []func(ctx context.Context) error
}

// failure is the panic that ends a play.
type failure struct{ error }

// Must ends the play if the experiment itself has failed.
func (s *Stage) Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Perform plays an experiment, and judges it.
func Perform(ctx context.Context, e Experiment) *Result {
	began, ttl := time.Now(), max(e.TTL, e.Server.MinTTL)
	st := &Stage{TTL: ttl, Patience: 4*ttl + 4*time.Second, Server: e.Server, Options: e.Options, ctx: ctx, lock: cmp.Or(e.Lock, LockName), subject: e.Subject,
		record: newRecord(), random: rand.New(rand.NewPCG(e.Seed, 0))}
	st.Account.Fenced.fenced = true
	observed := st.observe()
	err := st.run(e.Play)
	observed()
	st.record.finish()
	r := &Result{Subject: e.Subject.Name, Role: e.Subject.Role, Record: st.record, Took: time.Since(began)}
	for _, p := range st.processes {
		p.end()
		Disconnect(p.Proxies)
	}
	if err = st.log.Explain(errors.Join(err, st.cleanUp())); err != nil {
		r.Err = err.Error()
	}
	r.Account, r.Figures, r.Verdict = st.Account, st.figures, st.verdict()
	return r
}

// cleanupLimit is how long a cleanup may take.
const cleanupLimit = 15 * time.Second

// Cleanup calls undo after the experiment, when no process runs any more, also if the program is
// interrupted.
func (s *Stage) Cleanup(undo func(ctx context.Context) error) { s.cleanups = append(s.cleanups, undo) }

func (s *Stage) cleanUp() (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), cleanupLimit)
	defer cancel()
	for _, undo := range slices.Backward(s.cleanups) {
		err = errors.Join(err, undo(ctx))
	}
	return err
}

// Folder returns a new folder for files, which is removed at the end.
func (s *Stage) Folder() string {
	folder, err := os.MkdirTemp("", "dlock-lab-")
	s.Must(err)
	s.Cleanup(func(context.Context) error { return os.RemoveAll(folder) })
	return folder
}

// Figure notes a number that the experiment measured.
func (s *Stage) Figure(name string, value any) {
	s.figures = append(s.figures, Figure{name, value, false})
}

// Detail notes a number that a table leaves out.
func (s *Stage) Detail(name string, value any) {
	s.figures = append(s.figures, Figure{name, value, true})
}

// Stock says what the falls are that programs report.
func (s *Stage) Stock(of string, begin int) {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.record.Stock = &Stock{Of: of, Begin: begin}
}

// AtOnce returns how many processes, or threads of them, were inside at the same time.
func (s *Stage) AtOnce() int {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	return s.record.AtOnce()
}

// Subject returns the name of the subject that is played.
func (s *Stage) Subject() string { return s.subject.Name }

// Ours reports whether the subject is dlock.
func (s *Stage) Ours() bool { return s.subject.Role == subject.Ours }

// observeEvery is how often the server is asked whether the lock is held.
const observeEvery = 10 * time.Millisecond

// observe records what the server says, if it is a Redis, until end is called.
func (s *Stage) observe() (end func()) {
	if len(s.Server.Addrs) != 1 || !strings.HasPrefix(s.Server.URL(s.Server.Addrs), "redis://") {
		return func() {}
	}
	client := redis.NewClient(&redis.Options{Addr: s.Server.Addrs[0]})
	ctx, cancel := context.WithCancel(s.ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			if n, err := client.Exists(ctx, s.lock).Result(); err == nil {
				s.record.observed(n > 0)
			}
			time.Sleep(observeEvery)
		}
	})
	return func() {
		cancel()
		work.Wait()
		_ = client.Close() // it has no further use
	}
}

func (s *Stage) run(play func(s *Stage)) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			f, ok := reason.(failure)
			if !ok {
				panic(reason)
			}
			err = f.error
		}
	}()
	play(s)
	return s.ctx.Err()
}

// Process starts a process that locks the lock of the experiment.
func (s *Stage) Process(name string) *Process { return s.ProcessWithClock(name, 0) }

// ProcessWithClock starts a process whose wall clock is wrong by an amount.
func (s *Stage) ProcessWithClock(name string, wrong time.Duration) *Process {
	proxies, url, err := s.Server.Connect()
	s.Must(err)
	p := &Process{Name: name, stage: s, Proxies: proxies}
	j := s.job(url)
	j.Config.Clock = wrong
	s.start(p, j)
	s.Must(p.becomeReady())
	return p
}

// ProcessInNetwork starts a process in the network namespace of the server. It has no proxy: the
// server listens on the address of the namespace's cable.
func (s *Stage) ProcessInNetwork(name string) *Process {
	p := &Process{Name: name, stage: s, network: s.Server.Network}
	s.start(p, s.job(s.Server.URL(s.Server.Addrs)))
	s.Must(p.becomeReady())
	return p
}

// Programs starts n processes of a role, which execute a task instead of orders.
func (s *Stage) Programs(n int, role string, task any) (all []*Process) {
	text, err := json.Marshal(task)
	s.Must(err)
	j := s.job(s.Server.URL(s.Server.Addrs))
	j.Role, j.Task = role, text
	for i := range n {
		p := &Process{Name: fmt.Sprint(i + 1), stage: s, program: true}
		s.start(p, j)
		all = append(all, p)
	}
	for _, p := range all {
		s.Must(p.becomeReady())
	}
	return all
}

// job is the task of a process that locks with the servers at a URL.
func (s *Stage) job(url string) job {
	config := subject.Config{URL: url, Name: s.lock, TTL: s.TTL, Fixed: s.FixedTTL}
	return job{Role: Role, Subject: s.subject.Name, Config: config}
}

func (s *Stage) start(p *Process, j job) {
	if err := p.start(j); err != nil {
		s.Must(fmt.Errorf("starting process %s: %w", p.Name, err))
	}
	s.processes = append(s.processes, p)
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.record.Processes = append(s.record.Processes, p.Name)
}

// Cut loses all packets of the processes in the network namespace, in the given directions (default:
// both).
func (s *Stage) Cut(text string, directions ...proxy.Direction) {
	s.Must(s.Server.Network.Cut(directions...))
	s.Harm(text)
}

// Heal ends all cuts.
func (s *Stage) Heal(text string) {
	s.Must(s.Server.Network.Heal())
	s.Harm(text)
}

// LockName is the name of the lock of all experiments on servers of their own.
const LockName = "account"

// Harm notes what the experiment does.
func (s *Stage) Harm(text string) { s.record.add(Now(), Event{Kind: Harm, Text: text}) }

// Stuck notes that a process did not get the lock, although no living process had it.
func (s *Stage) Stuck(text string) {
	s.stuck = true
	s.Harm(text)
}

// Herd notes that a release woke all waiters.
func (s *Stage) Herd(text string) {
	s.herd = true
	s.Harm(text)
}

// Wait lets time pass: d, and up to a tenth of it more.
func (s *Stage) Wait(d time.Duration) {
	select {
	case <-time.After(d + time.Duration(s.random.Int64N(int64(d)/10))):
	case <-s.ctx.Done():
		s.Must(s.ctx.Err())
	}
}

// Await waits for something that the experiment has arranged.
func (s *Stage) Await(what string, happened <-chan struct{}) {
	select {
	case <-happened:
	case <-time.After(answerLimit):
		s.Must(fmt.Errorf("%s: did not happen within %v", what, answerLimit))
	case <-s.ctx.Done():
		s.Must(s.ctx.Err())
	}
}

// Context ends when the experiment has to end.
func (s *Stage) Context() context.Context { return s.ctx }
