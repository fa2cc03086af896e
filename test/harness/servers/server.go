package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/test/harness/pause"
	"github.com/dlock-go/dlock/test/harness/servers/internal/process"
)

const (
	readyLimit = 60 * time.Second // generous for a loaded machine
	stopLimit  = time.Minute      // a last checkpoint takes long on a busy machine
	killLimit  = 10 * time.Second
	pollEvery  = 5 * time.Millisecond
)

// Server is a server that this process started. Addr, URL and Log are safe for
// concurrent use; the other methods are not.
type Server struct {
	kind  *Kind
	in    Instance
	extra []string
	guard *process.Guard
	proc  *process.Process // the last process; nil before the first start
}

// Start starts a server with additional arguments and waits until it answers. The
// arguments come last, so that they override those of the Kind.
func Start(kind *Kind, args ...string) (*Server, error) {
	binary, err := kind.locate()
	if err != nil {
		return nil, err
	}
	s := &Server{kind: kind, extra: args}
	if err := s.createFolder(binary); err != nil {
		return nil, fmt.Errorf("starting %s: %w", kind.Name, err)
	}
	if err := s.startOnFreePort(); err != nil {
		err = fmt.Errorf("starting %s: %w\n%s", kind.Name, err, s.Log())
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Addr returns host:port. It stays the same across restarts.
func (s *Server) Addr() string { return net.JoinHostPort(s.in.Host, strconv.Itoa(s.in.Port)) }

// URL returns the address in the form that dlock's stores accept.
func (s *Server) URL() string { return s.kind.URL(s.Addr()) }

// PID returns the ID of the main process, which changes with every restart.
func (s *Server) PID() int { return s.proc.PID }

// Dir returns the server's folder. Stop removes it.
func (s *Server) Dir() string { return s.in.Dir }

// Log returns the output of the server so far, or the end of it if it is long.
func (s *Server) Log() string {
	content, err := os.ReadFile(s.logFile())
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	const limit = 16 << 10
	if len(content) > limit {
		content = append([]byte("[...]"), content[len(content)-limit:]...)
	}
	return string(content)
}

// Stop asks the server to end, waits for that, and removes its folder. It works
// in any state of the server and may be called twice. It returns an error if the
// server had to be killed or if something is left.
func (s *Server) Stop() error {
	if s.guard == nil {
		return nil
	}
	err := errors.Join(s.end(), s.guard.Finish())
	s.guard = nil
	if _, statErr := os.Stat(s.in.Dir); statErr == nil {
		err = errors.Join(err, fmt.Errorf("%s is still there", s.in.Dir))
	}
	left, membersErr := process.Members(s.in.Dir)
	err = errors.Join(err, membersErr)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("processes %v are still there", left))
	}
	if err != nil {
		return fmt.Errorf("stopping %s: %w", s.kind.Name, err)
	}
	return nil
}

// Kill ends the server and all its processes with SIGKILL, as a crash would. Its
// data stays for Restart.
func (s *Server) Kill() error {
	if err := process.SignalAll(s.in.Dir, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s: %w", s.kind.Name, err)
	}
	if err := s.waitGone(killLimit); err != nil {
		return fmt.Errorf("killing %s: %w", s.kind.Name, err)
	}
	return nil
}

// Pause stops the server with SIGSTOP: connections stay open, and the server does
// not answer until Resume.
func (s *Server) Pause() error {
	if err := s.signalRunning("pausing", syscall.SIGSTOP); err != nil {
		return err
	}
	return pause.Await(s.proc.PID)
}

// Resume lets a paused server continue.
func (s *Server) Resume() error { return s.signalRunning("resuming", syscall.SIGCONT) }

// Restart stops the server, unless it was killed already, starts it with its data
// at the same address, and waits until it answers.
func (s *Server) Restart() error { return s.restart(false) }

// RestartEmpty is Restart with all data lost.
func (s *Server) RestartEmpty() error { return s.restart(true) }

// WaitReady waits until the server answers. Its error explains why the server
// does not.
func (s *Server) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := s.kind.probe(ctx, s.Addr())
		if s.proc == nil || s.proc.Ended() { // another server may have answered
			return fmt.Errorf("%s is not running: %w", s.kind.Name, s.exitError())
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w (%w)", s.kind.Name, err, context.Cause(ctx))
		}
	}
}

func (s *Server) exitError() error {
	switch {
	case s.proc == nil:
		return errors.New("never started")
	case s.proc.Err != nil:
		return s.proc.Err
	default:
		return errors.New("ended by itself")
	}
}

func (s *Server) signalRunning(what string, signal syscall.Signal) error {
	if s.proc == nil || s.proc.Ended() {
		return fmt.Errorf("%s %s: %w", what, s.kind.Name, s.exitError())
	}
	if err := process.SignalAll(s.in.Dir, signal); err != nil {
		return fmt.Errorf("%s %s: %w", what, s.kind.Name, err)
	}
	return nil
}

func (s *Server) restart(empty bool) error {
	err := s.end()
	if err == nil && empty {
		err = s.emptyData()
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		return fmt.Errorf("restarting %s: %w\n%s", s.kind.Name, err, s.Log())
	}
	return nil
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	if s.kind.Configure != nil {
		if err := s.kind.Configure(s.in); err != nil {
			return err
		}
	}
	command := append(Command{s.in.Binary}, append(s.kind.Args(s.in), s.extra...)...)
	var env []string
	if s.kind.Env != nil {
		env = s.kind.Env(s.in)
	}
	proc, err := process.Launch(command, env, s.in.Dir, s.logFile())
	if err != nil {
		return err
	}
	s.proc = proc
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	err = s.WaitReady(ctx)
	if s.kind.Started != nil {
		err = errors.Join(err, s.kind.Started(proc.PID))
	}
	return err
}

// end ends the server in the way of its kind.
func (s *Server) end() error {
	if s.kind.StopByKill {
		return s.Kill()
	}
	return s.halt()
}

// halt asks the server to end and waits. A server that does not end is killed,
// which is an error.
func (s *Server) halt() error {
	if s.proc == nil || s.proc.Ended() {
		return s.Kill() // child processes may still run
	}
	if err := process.SignalAll(s.in.Dir, syscall.SIGCONT); err != nil {
		return err
	}
	signal := s.kind.StopSignal
	if signal == 0 {
		signal = syscall.SIGTERM
	}
	if err := syscall.Kill(s.proc.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if err := s.waitGone(stopLimit); err != nil {
		return errors.Join(err, s.Kill())
	}
	return nil
}

// waitGone waits until no process of the server is left.
func (s *Server) waitGone(limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	if s.proc != nil {
		select {
		case <-s.proc.Done:
		case <-deadline.C:
			return fmt.Errorf("process %d has not ended after %v", s.proc.PID, limit)
		}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		left, err := process.Members(s.in.Dir)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("processes %v have not ended after %v", left, limit)
		}
	}
}

func (s *Server) logFile() string { return filepath.Join(s.in.Dir, "log") }

// portTaken reports whether the server ended because another program has its
// port. The text is that of the C library, which all servers so far print.
func (s *Server) portTaken() bool {
	return s.proc != nil && s.proc.Ended() && strings.Contains(strings.ToLower(s.Log()), "address already in use")
}

// SQL executes statements as the administrator of a database, and returns their
// output: one line per row, without headings.
func (s *Server) SQL(ctx context.Context, statements string) (string, error) {
	if s.kind.SQL == nil {
		return "", fmt.Errorf("%s has no SQL: %w", s.kind.Name, errors.ErrUnsupported)
	}
	command := s.kind.SQL(s.in, statements)
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", s.kind.Name, statements, err, text)
	}
	return text, nil
}
