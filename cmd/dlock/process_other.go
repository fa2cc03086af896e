//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"os"
	"syscall"
	"time"
)

// job is a command that runs under a lock. There are no process groups here:
// signals and the end on loss reach the command alone.
type job struct {
	name     string // of the lock
	path     string
	args     []string
	env      []string
	files    []*os.File // stdin, stdout, stderr
	patience patience
	onLoss   func()    // says that the lock is lost
	endAt    time.Time // when the command is ended though the lock is held; zero: never
	onLimit  func()    // says that it was held for too long
}

// run starts the command and returns when it has ended. When the lock is lost the
// command is killed. An error says that it did not start.
func (j *job) run(l lease, arrived chan os.Signal) (ending, error) {
	held := l.Context()
	process, err := os.StartProcess(j.path, j.args, &os.ProcAttr{Env: j.env, Files: j.files})
	if err != nil {
		return ending{}, err
	}
	done := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := process.Wait()
		done <- state
	}()
	var end ending
	lost := held.Done()
	var limit <-chan time.Time
	if !j.endAt.IsZero() {
		limit = time.After(time.Until(j.endAt))
	}
	for {
		select {
		case state := <-done:
			end.lost = end.lost || held.Err() != nil
			end.status = state.ExitCode()
			return end, nil
		case s := <-arrived:
			end.interrupted = end.interrupted || isStopSignal(s)
			_ = process.Signal(s)
		case <-lost:
			lost = nil
			_ = process.Kill()
			j.onLoss()
		case <-limit:
			limit, lost = nil, nil
			end.lost = true
			_ = process.Kill()
			j.onLimit()
		}
	}
}

func isGuard([]string) bool { return false }

func guard([]string) int { return 0 }

func isStarter([]string) bool { return false }

func starter([]string) int { return 0 }

func executable() (string, error) { return os.Executable() }

func childAttributes() *syscall.SysProcAttr { return nil }

func isTerminal(*os.File) bool { return false }

func terminalWidth(*os.File) int { return 0 }

func ignoreTerminalStops() {}

func uptime() time.Duration { return time.Since(started) }

var started = time.Now()
