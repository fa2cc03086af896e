package tokens

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
)

// Scenario is a service and some processes that need its token.
type Scenario struct {
	Processes int

	// Start starts the process of a user. It sends true when it is ready, starts at the
	// next step, and sends its Log at the end.
	Start func(ctx context.Context, service string) (*child.Process, error)

	// Progress is called after each call of the service.
	Progress func(failed bool)
}

// Result is the outcome of a run.
type Result struct {
	Count
	Elapsed time.Duration
	Logs    []Log // of each process
}

// Run lets all processes begin at the same time. When it returns, no process runs any more.
func (s *Scenario) Run(ctx context.Context) (*Result, error) {
	service, err := StartService(ctx, s.Progress)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	logs, err := s.runUsers(ctx, service.URL())
	elapsed := time.Since(begun)
	return &Result{service.Close(), elapsed, logs}, err
}

func (s *Scenario) runUsers(ctx context.Context, service string) ([]Log, error) {
	users, err := child.StartGroup(s.Processes, func() (*child.Process, error) { return s.Start(ctx, service) })
	defer users.Wait()
	if err != nil {
		return nil, err
	}
	if _, err := child.ReceiveAll[bool](users); err != nil {
		return nil, err
	}
	for _, user := range users {
		if err := user.Send(true); err != nil {
			return nil, err
		}
	}
	return child.ReceiveAll[Log](users)
}
