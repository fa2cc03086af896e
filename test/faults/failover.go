package faults

import "context"

// Failover is what can be done to a server with replicas.
type Failover struct {
	// Isolate cuts the leader off from its replicas: what it is told from now
	// on, they do not hear.
	Isolate func()
	// Kill kills the leader, and returns when another one has taken over.
	Kill func(ctx context.Context) error
}
