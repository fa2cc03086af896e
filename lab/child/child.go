// Package child runs the processes of the laboratory. The parent describes the task of a process in
// an environment variable, because every user of the machine sees the arguments of a process.
// Then both exchange JSON, one value a line, over the standard input and output of the process, which
// ends when its input does.
package child

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/test/harness/child"
)

// variable holds the task of a process: an object with the field role. Programs in Java read it, too.
const variable = "DLOCK_LAB_WORKER"

// Run runs the process of a role if this program was started as one. Otherwise ok is false.
func Run(roles map[string]func(task []byte) error) (err error, ok bool) { //nolint:revive // ok comes last
	task := os.Getenv(variable)
	if task == "" {
		return nil, false
	}
	var t struct{ Role string }
	if err := json.Unmarshal([]byte(task), &t); err != nil {
		return err, true
	}
	role := roles[t.Role]
	if role == nil {
		return fmt.Errorf("unknown role %q of a process", t.Role), true
	}
	return role([]byte(task)), true
}

// Process is a process, as its parent sees it.
type Process = child.Process

// Start starts a command with a task, and calls receive with each report of the process. What the process writes
// to standard error goes to log.
func Start[Report any](command []string, task any, log *Log, receive func(r Report)) (*Process, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = log
	return child.Start(cmd, func(line string) {
		var r Report
		if json.Unmarshal([]byte(line), &r) == nil { // the process may be killed in the middle of a line
			receive(r)
		}
	})
}

// Log keeps the end of what processes wrote to standard error.
type Log struct {
	mu   sync.Mutex
	text []byte
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const limit = 8 << 10
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-limit):]
	return len(b), nil
}

// Explain adds what the processes wrote to an error.
func (l *Log) Explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := strings.TrimSpace(string(l.text)); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}
