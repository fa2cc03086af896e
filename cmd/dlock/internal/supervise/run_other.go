//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package supervise

import (
	"os"
)

// Run starts the command and blocks until it has ended. If the lock is lost, it kills the
// command, but not what the command has started. An error means that it did not start.
func (j *Job) Run(lease Lease, signals chan os.Signal) (Result, error) {
	held := lease.Context()
	if held.Err() != nil {
		return Result{}, ErrLost
	}
	process, err := os.StartProcess(j.Path, j.Args, &os.ProcAttr{Env: j.Env, Files: j.Files})
	if err != nil {
		return Result{}, err
	}
	done := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := process.Wait()
		done <- state
	}()
	var result Result
	lost, limit := held.Done(), j.Limit
	for {
		select {
		case state := <-done:
			result.Lost = result.Lost || held.Err() != nil
			result.Status = state.ExitCode()
			return result, nil
		case s := <-signals:
			result.Interrupted = result.Interrupted || IsStop(s)
			_ = process.Signal(s)
		case <-lost:
			lost = nil
			_ = process.Kill()
			j.OnLoss()
		case <-limit:
			limit, lost = nil, nil
			result.Lost = true
			_ = process.Kill()
			j.OnLimit()
		}
	}
}

// IgnoreTerminalStops does nothing on this system.
func IgnoreTerminalStops() {}
