package soak

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/history"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// stopLimit bounds the time in which a process ends after the order to stop.
const stopLimit = time.Minute

// process is a process that locks, with a network of its own.
type process struct {
	job     job
	record  *record
	proxies []*proxy.Proxy
	log     *child.Log

	child    *child.Process
	mu       sync.Mutex
	measures []Measure // of the present process
}

// newProcess starts a process with proxies between it and the servers.
func newProcess(j job, place *place, record *record, log *child.Log) (*process, error) {
	proxies, url, err := place.Connect()
	if err != nil {
		return nil, err
	}
	p := &process{job: j, record: record, log: log, proxies: proxies}
	p.job.URL = url
	if err := p.start(); err != nil {
		stage.Disconnect(proxies)
		return nil, err
	}
	return p, nil
}

func (p *process) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.measures = nil
	p.mu.Unlock()
	p.record.started(p.job.Process)
	p.child, err = child.Start([]string{program}, p.job, p.log, p.receive)
	return err
}

func (p *process) receive(l line) {
	if l.Measure == nil {
		p.record.add(p.job.Process, l.Event)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measures = append(p.measures, *l.Measure)
}

// kill ends the process without a chance to clean up.
func (p *process) kill() {
	p.child.Kill()
	p.record.died(p.job.Process, history.Now())
}

// stop lets the process end by itself. It returns what the process needed at its start and at
// its end, if it lived long enough.
func (p *process) stop() ([]Measure, error) {
	err := p.child.Stop(stopLimit)
	p.record.died(p.job.Process, history.Now())
	stage.Disconnect(p.proxies)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.job.Process, err)
	}
	return p.measures, nil
}

// each calls do with every proxy of the process.
func (p *process) each(do func(*proxy.Proxy)) {
	for _, between := range p.proxies {
		do(between)
	}
}
