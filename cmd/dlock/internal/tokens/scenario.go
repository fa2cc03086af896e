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
	// told to, and says when it is done.
	Hire func(ctx context.Context, service string) (*child.Process, error)

	// Progress is called after each call of the service.
	Progress func(failed bool)
}

// Result is what came of a run.
type Result struct {
	Count
	Elapsed time.Duration
}

// Run lets all processes begin at the same time. When it returns nothing runs any
// more.
func (s *Scenario) Run(ctx context.Context) (*Result, error) {
	service, err := StartService(ctx, s.Progress)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	err = s.play(ctx, service.URL())
	elapsed := time.Since(begun)
	return &Result{service.Close(), elapsed}, err
}

func (s *Scenario) play(ctx context.Context, service string) error {
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
			return err
		}
		users = append(users, user)
	}
	hear := func() error { // of all of them
		for _, user := range users {
			var ok bool
			if err := user.Hear(&ok); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
		}
		return nil
	}
	if err := hear(); err != nil { // that they are ready
		return err
	}
	for _, user := range users {
		if err := user.Tell(true); err != nil {
			return err
		}
	}
	return hear() // that they are done
}
