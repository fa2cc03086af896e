package tokens

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
)

// Scenario is a service and some processes that need its token.
type Scenario struct {
	Processes int

	// Hire starts the process of a user. It says when it is ready, starts when it is
	// told to, and tells its Log when it is done.
	Hire func(ctx context.Context, service string) (*child.Process, error)

	// Progress is called after each call of the service.
	Progress func(failed bool)
}

// Result is what came of a run.
type Result struct {
	Count
	Elapsed time.Duration
	Logs    []Log // of each process
}

// Run lets all processes begin at the same time. When it returns nothing runs any
// more.
func (s *Scenario) Run(ctx context.Context) (*Result, error) {
	service, err := StartService(ctx, s.Progress)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	logs, err := s.play(ctx, service.URL())
	elapsed := time.Since(begun)
	return &Result{service.Close(), elapsed, logs}, err
}

func (s *Scenario) play(ctx context.Context, service string) ([]Log, error) {
	var users []*child.Process
	defer func() {
		var all sync.WaitGroup
		for _, user := range users {
			all.Go(user.Wait)
		}
		all.Wait()
	}()
	for range s.Processes {
		user, err := s.Hire(ctx, service)
		if err != nil {
			return nil, err
		}
		users = append(users, user)
	}
	for _, user := range users {
		var ready bool
		if err := user.Hear(&ready); err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}
	for _, user := range users {
		if err := user.Tell(true); err != nil {
			return nil, err
		}
	}
	logs := make([]Log, len(users))
	for i, user := range users {
		if err := user.Hear(&logs[i]); err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
	}
	return logs, nil
}
