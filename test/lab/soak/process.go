package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/test/harness/history"
	"github.com/dlock-go/dlock/test/harness/pause"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// stopLimit bounds the time in which a process ends after the order to stop.
const stopLimit = time.Minute

// process is a process that locks, with a network of its own.
type process struct {
	job     job
	record  *record
	proxies []*proxy.Proxy
	log     *tail

	cmd      *exec.Cmd
	in       io.Closer
	ended    chan struct{} // closed after the last report
	mu       sync.Mutex
	measures []Measure // of the present process
}

// newProcess starts a process with proxies between it and the servers.
func newProcess(j job, place *place, record *record, log *tail) (*process, error) {
	p := &process{job: j, record: record, log: log}
	var addrs []string
	for _, addr := range place.addrs {
		between, err := proxy.Start(addr)
		if err != nil {
			p.closeProxies()
			return nil, err
		}
		p.proxies, addrs = append(p.proxies, between), append(addrs, between.Addr())
	}
	p.job.URL = place.url(addrs)
	if err := p.start(); err != nil {
		p.closeProxies()
		return nil, err
	}
	return p, nil
}

func (p *process) start() error {
	description, err := json.Marshal(p.job)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(program)
	p.cmd.Env = append(os.Environ(), WorkerVariable+"="+string(description))
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.record.started(p.job.Process)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.measures = nil
	p.mu.Unlock()
	p.ended = make(chan struct{})
	go p.listen(out, p.ended)
	return nil
}

func (p *process) listen(out io.Reader, ended chan struct{}) {
	defer close(ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // the process was killed in the middle of a line
		}
		if l.Measure != nil {
			p.mu.Lock()
			p.measures = append(p.measures, *l.Measure)
			p.mu.Unlock()
			continue
		}
		p.record.add(p.job.Process, l)
	}
}

// kill ends the process without a chance to clean up.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	_ = p.cmd.Wait() // reports the kill
	p.record.died(p.job.Process, history.Now())
}

func (p *process) pause() error { return pause.Process(p.cmd.Process.Pid) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// stop lets the process end by itself. It returns what the process needed at its start and at
// its end, if it lived long enough.
func (p *process) stop() ([]Measure, error) {
	p.in.Close()
	var err error
	select {
	case <-p.ended:
		err = p.cmd.Wait()
	case <-time.After(stopLimit):
		err = fmt.Errorf("it has not ended after %v", stopLimit)
	}
	p.kill()
	p.closeProxies()
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.job.Process, err)
	}
	return p.measures, nil
}

func (p *process) closeProxies() {
	for _, between := range p.proxies {
		between.Close()
	}
}

// each calls do with every proxy of the process.
func (p *process) each(do func(*proxy.Proxy)) {
	for _, between := range p.proxies {
		do(between)
	}
}

// tail keeps the end of what processes wrote to standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const limit = 8 << 10
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-limit):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
