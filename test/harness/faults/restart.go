package faults

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
)

// Restarts are the faults of a server that crashes and keeps its data. They need
// Restart and a store with Traits.SurvivesRestart. Other tests on the same server
// notice them.
var Restarts = []Fault{{"SIGKILL of the server, which comes back", restartServer}}

// restartServer checks that the lock and its token survive, and that the holder
// and the waiter go on.
func restartServer(t *testing.T, r rig) {
	holder, renewed := r.renewingClient(t)
	if !holder.Traits().SurvivesRestart {
		t.Error("the traits do not promise that locks survive a restart")
	}
	outlasts := 5 * r.TTL // longer than the crash
	lease := r.lock(t, holder, "survivor", dlock.WithTTL(outlasts))
	later := r.lockAsync(t.Context(), r.client(t), "survivor", dlock.WithTTL(outlasts))
	wait(t, r.TTL/4) // the client begins to wait
	if err := errors.Join(r.Server.Kill(), r.Server.Restart()); err != nil {
		t.Fatal(err)
	}
	r.mustHaveToken(t, r.mustBeHeld(t, "survivor", "it was held before the crash"), lease.Token())
	renewed()
	unlock(t, lease)
	next := served(t, later)
	rises(t, next.Token(), lease.Token())
	unlock(t, next)
}
