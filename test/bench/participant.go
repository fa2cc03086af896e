package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
	"golang.org/x/sys/unix"
)

// participantVariable makes this program a process of handover.
const participantVariable = "DLOCK_BENCH_PARTICIPANT"

// assignment tells such a process what to measure.
type assignment struct {
	Store, Subject string
	Place          subjects.Place
	Plan           subjects.Plan
}

// monotonic returns the time of a clock that is the same in every process.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Linux has this clock
	}
	return time.Duration(now.Nano())
}

// participant is a process or a client that contends, as seen by the program that
// measures.
type participant struct {
	send    *json.Encoder
	receive *json.Decoder
	end     func() error // waits for one that has sent its report, and stops any other
}

// participants lets n processes or clients contend. Each reports that it is
// connected, receives the span, and sends its report in the end. The time to get
// ready is not measured.
func (r round) participants(
	ctx context.Context, m *subjects.Meter, n int, p subjects.Plan,
) (reports []report, s span, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []*participant
	defer func() {
		if err != nil {
			cancel() // the others would wait for ever
		}
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	begin := r.beginClient
	if r.store.Processes {
		begin = r.beginProcess
	}
	for range n {
		p, err := begin(ctx, p)
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
	if err := m.Begin(ctx); err != nil {
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

// beginProcess runs this program once more, or that of a foreign subject.
func (r round) beginProcess(ctx context.Context, p subjects.Plan) (*participant, error) {
	program := r.self
	if r.subject.Program != nil {
		program = r.subject.Program
	}
	cmd, err := program(ctx, r.place, p)
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
	return &participant{json.NewEncoder(input), json.NewDecoder(output), func() error {
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		return cmd.Wait()
	}}, nil
}

// self returns the command that runs this program as a process of handover.
func (r round) self(ctx context.Context, at subjects.Place, p subjects.Plan) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(assignment{r.store.Name, r.subject.Name, at, p})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), participantVariable+"="+string(text))
	return cmd, nil
}

// participate is the main function of such a process.
func participate(ctx context.Context, text string) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	for _, store := range subjects.Stores {
		i := slices.IndexFunc(store.Subjects, func(s subjects.Subject) bool { return s.Name == a.Subject })
		if i >= 0 && store.Name == a.Store {
			return follow(ctx, store.Subjects[i], a.Place, a.Plan, os.Stdin, os.Stdout)
		}
	}
	return fmt.Errorf("no subject %s on %s", a.Subject, a.Store)
}

// beginClient does the same in this process.
func (r round) beginClient(ctx context.Context, p subjects.Plan) (*participant, error) {
	input, send := io.Pipe()
	receive, output := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := follow(ctx, r.subject, r.place, p, input, output)
		output.CloseWithError(err)
		ended <- err
	}()
	return &participant{json.NewEncoder(send), json.NewDecoder(receive), func() error {
		_, _ = send.Close(), receive.Close() // never fail
		return <-ended
	}}, nil
}

// follow is what each of them does.
func follow(
	ctx context.Context, s subjects.Subject, at subjects.Place, p subjects.Plan, in io.Reader, out io.Writer,
) (err error) {
	c, err := s.Open(ctx, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	send := json.NewEncoder(out)
	if err := send.Encode(true); err != nil {
		return err
	}
	var sp span
	if err := json.NewDecoder(in).Decode(&sp); err != nil {
		return err
	}
	rep, err := contend(ctx, c, sp, p)
	if err != nil {
		return err
	}
	return send.Encode(rep)
}
