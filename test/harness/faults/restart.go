package faults

import (
	"testing"

	"github.com/dlock-go/dlock"
)

// Restarts are the faults of a server that crashes and keeps its data, for rigs
// with Restart whose store has Traits.SurvivesRestart. Others on the same server
// notice.
var Restarts = []Fault{{"SIGKILL of the server, which comes back", restartServer}}

// restartServer: the lock and the token are there, the holder goes on, and so does
// whoever waits.
func restartServer(t *testing.T, r Rig) {
	if r.Restart == nil {
		t.Fatal("the rig cannot restart the server")
	}
	holder, renewed := r.keeper(t)
	if !holder.Traits().SurvivesRestart {
		t.Error("the store does not say that locks survive a restart")
	}
	outlasts := 5 * r.TTL // the crash
	lease := r.lock(t, holder, "survivor", dlock.WithTTL(outlasts))
	served := r.lockUnfairLater(t, "survivor", outlasts)
	wait(t, r.TTL/4) // in which it begins to wait
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if held := r.refuses(t, "survivor", "it was held before the crash"); held.Token != 0 && held.Token != lease.Token() {
		t.Errorf("the lock has token %d after the crash, and had %d", held.Token, lease.Token())
	}
	renewed()
	unlock(t, lease)
	next := happens(t, served, "the lock")
	if next.err != nil {
		t.Fatalf("Lock across the crash: %v", next.err)
	}
	if next.lease.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.lease.Token(), lease.Token())
	}
	unlock(t, next.lease)
}
