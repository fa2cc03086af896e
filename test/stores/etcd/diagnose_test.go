package etcd

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

func hasProblem(findings []driver.Finding, check string) bool {
	for _, f := range findings {
		if f.Check == check && f.Level == driver.LevelProblem {
			return true
		}
	}
	return false
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for size, url := range map[string]string{
		"One member": servers.Run(t, servers.Etcd).URL(),
		"3 members":  servers.RunEtcdCluster(t, nil).URL(),
	} {
		findings := want.Value(newStore(t, url).Diagnose(t.Context()))(t)
		text := fmt.Sprintf("%+v", findings)
		for _, want := range []string{"etcd 3.", size, "No alarms", "does not leave this machine"} {
			if !strings.Contains(text, want) {
				t.Errorf("the diagnosis does not say %q: %s", want, text)
			}
		}
		for _, f := range findings {
			if f.Level == driver.LevelProblem {
				t.Errorf("%s: %s is a problem on a healthy server: %s", size, f.Check, f.Message)
			}
		}
	}
}

// TestMissingCompactionIsDiagnosed: Diagnose warns of a server that has compacted none of many
// revisions.
func TestMissingCompactionIsDiagnosed(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	const revisions = 10_100
	var writers sync.WaitGroup
	for range 100 {
		writers.Go(func() {
			for range revisions / 100 {
				if _, err := raw.Put(t.Context(), "busy", ""); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	compaction := func() driver.Finding {
		findings := want.Value(newStore(t, server.URL()).Diagnose(t.Context()))(t)
		for _, f := range findings {
			if f.Check == "compaction" {
				return f
			}
		}
		t.Fatal("Diagnose says nothing about compaction")
		return driver.Finding{}
	}
	if f := compaction(); f.Level != driver.LevelWarning {
		t.Errorf("Diagnose before a compaction: %+v; want a warning", f)
	}
	want.OK(t, want.Err(raw.Compact(t.Context(), revisions/2)))
	if f := compaction(); f.Level != driver.LevelOK {
		t.Errorf("Diagnose after a compaction: %+v; want no warning", f)
	}
}
