package servers

import (
	"strconv"
	"testing"
)

func TestZooKeeperCounts(t *testing.T) {
	t.Parallel()
	s := Run(t, ZooKeeper)
	figures, err := s.Monitor(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(figures["zk_znode_count"]); err != nil || n == 0 {
		t.Errorf("a server counts %q nodes", figures["zk_znode_count"])
	}
	try(t, s.Kill)
	try(t, s.Restart)
	answers(t, s)
}

func TestEnsembleSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	e := RunEnsemble(t)
	first, err := e.Leader(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	try(t, first.Kill)
	second, err := e.Leader(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Error("a server that was killed leads")
	}
	try(t, first.Restart)
	try(t, first.Pause)
	try(t, first.Resume)
	answers(t, first)
}
