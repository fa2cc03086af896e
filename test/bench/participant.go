package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
	"golang.org/x/sys/unix"
)

// participantVariable makes this program a process of handover.
const participantVariable = "DLOCK_BENCH_PARTICIPANT"

// assignment tells such a process what to measure.
type assignment struct {
	Store, Subject, Dir string
	Plan                subjects.Plan
}

// monotonic returns the time of a clock that is the same in every process.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Linux has this clock
	}
	return time.Duration(now.Nano())
}

// contendInProcesses runs this program several times. Each process reports that
// it is connected, receives the span, and sends its report in the end. The time
// to get ready is not measured.
func contendInProcesses(ctx context.Context, r round, m *meter, n int, plan subjects.Plan) (reports []report, s span, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []*participant
	defer func() {
		if err != nil {
			cancel() // the other processes would wait for ever
		}
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	for range n {
		p, err := startParticipant(ctx, r, plan)
		if err != nil {
			return nil, s, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		var connected bool
		if err := p.receive.Decode(&connected); err != nil {
			return nil, s, fmt.Errorf("a process did not get ready: %w", err)
		}
	}
	if err := m.begin(ctx); err != nil {
		return nil, s, err
	}
	s = spanFor(r.window)
	for _, p := range all {
		if err := p.send.Encode(s); err != nil {
			return nil, s, err
		}
	}
	reports = make([]report, len(all))
	for i, p := range all {
		if err := p.receive.Decode(&reports[i]); err != nil {
			return nil, s, fmt.Errorf("a process did not report: %w", err)
		}
	}
	return reports, s, nil
}

// participate is the main function of such a process.
func participate(ctx context.Context, text string) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	sub, err := a.subject()
	if err != nil {
		return err
	}
	clients, err := connect(ctx, sub, a.Dir, 1)
	if err != nil {
		return err
	}
	err = follow(ctx, clients[0], a.Plan)
	return errors.Join(err, closeAll(clients))
}

func follow(ctx context.Context, c subjects.Client, p subjects.Plan) error {
	send := json.NewEncoder(os.Stdout)
	if err := send.Encode(true); err != nil {
		return err
	}
	var s span
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	rep, err := contend(ctx, c, s, p)
	if err != nil {
		return err
	}
	return send.Encode(rep)
}

func (a assignment) subject() (subjects.Subject, error) {
	for _, st := range subjects.Stores {
		for _, sub := range st.Subjects {
			if st.Name == a.Store && sub.Name == a.Subject {
				return sub, nil
			}
		}
	}
	return subjects.Subject{}, fmt.Errorf("no subject %s on %s", a.Subject, a.Store)
}

// participant is a process of handover, as its parent sees it.
type participant struct {
	cmd     *exec.Cmd
	send    *json.Encoder
	receive *json.Decoder
}

// end waits for a process that has sent its report, and kills any other.
func (p *participant) end() error {
	timer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	return p.cmd.Wait()
}

func startParticipant(ctx context.Context, r round, p subjects.Plan) (*participant, error) {
	var cmd *exec.Cmd
	var err error
	if r.subject.Foreign != nil {
		cmd, err = r.subject.Foreign(ctx, r.dir, p)
	} else {
		cmd, err = r.self(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &participant{cmd, json.NewEncoder(input), json.NewDecoder(output)}, nil
}

// self returns the command that runs this program as a process of handover.
func (r round) self(ctx context.Context, p subjects.Plan) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(assignment{r.store.Name, r.subject.Name, r.dir, p})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), participantVariable+"="+string(text))
	return cmd, nil
}
