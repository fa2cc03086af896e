package servers

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func TestSentinelFailsOverAndOldMasterRejoins(t *testing.T) {
	t.Parallel()
	s := RunSentinel(t, SentinelOptions{})
	ctx := limit(t)
	master := s.Servers[0]
	if got, err := s.Master(ctx); err != nil || got != master {
		t.Fatalf("the sentinels name %v (%v), want the first server", got, err)
	}
	if want := "redis+sentinel://" + strings.Join(s.Sentinels.Addrs(), ",") + "/" + MasterName; s.URL() != want {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
	acknowledged(t, master, "kept", replicaCount)

	try(t, master.Kill)
	promoted, err := s.WaitFailover(ctx, master)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, promoted, "SET after 1\r\n", "+OK") // -READONLY if it is still a replica
	if got := ask(t, promoted, "EXISTS kept\r\n", ":"); got != ":1" {
		t.Error("a write that both replicas had acknowledged is lost")
	}

	// The promoted server keeps its role.
	try(t, promoted.Kill)
	try(t, promoted.Restart)
	if got := ask(t, promoted, "ROLE\r\n", "*"); got != "*3" { // the answer of a replica has five elements
		t.Errorf("the promoted server is no master after a restart: ROLE has %s", got)
	}

	try(t, master.Restart)
	if err := s.WaitSettled(ctx); err != nil {
		t.Fatal(err)
	}
	if current, err := s.Master(ctx); err != nil || current == master {
		t.Errorf("the old master is master again (%v)", err)
	}
	ask(t, master, "SET refused 1\r\n", "-READONLY")

	try(t, s.Stop)
	for _, server := range s.all() {
		gone(t, server.Dir())
	}
}

func TestSentinelNeedsTwoOfThree(t *testing.T) {
	t.Parallel()
	s := RunSentinel(t, SentinelOptions{})
	ctx := limit(t)
	try(t, s.Sentinels[0].Kill)
	try(t, s.Sentinels[1].Pause) // with one sentinel there is no majority
	if _, err := s.Master(ctx); err == nil {
		t.Error("one sentinel of three is taken for a majority")
	}
	try(t, s.Sentinels[1].Resume)
	try(t, s.Servers[0].Kill)
	if _, err := s.WaitFailover(ctx, s.Servers[0]); err != nil {
		t.Error(err)
	}
}

func TestSentinelCutReplicationLosesLaterWrites(t *testing.T) {
	t.Parallel()
	var cable *relay
	s := RunSentinel(t, SentinelOptions{ReplicaOf: func(master string) string {
		cable = newRelay(t, master)
		return cable.Addr().String()
	}})
	master := s.Servers[0]
	acknowledged(t, master, "kept", replicaCount)
	cable.cut()
	acknowledged(t, master, "lost", 0)
	try(t, master.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // sentinels repeat a failed election after a minute
	defer cancel()
	promoted, err := s.WaitFailover(ctx, master)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, promoted, "EXISTS kept\r\n", ":"); got != ":1" {
		t.Error("a write from before the cut is lost")
	}
	if got := ask(t, promoted, "EXISTS lost\r\n", ":"); got != ":0" {
		t.Error("a write from after the cut has reached a replica")
	}
}

func TestSentinelPassesArgumentsToServers(t *testing.T) {
	t.Parallel()
	s := RunSentinel(t, SentinelOptions{Args: []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}})
	master := s.Servers[0]
	acknowledged(t, master, "kept", replicaCount)
	for _, replica := range s.Servers[1:] {
		try(t, replica.Pause)
	}
	if err := until(limit(t), "the master misses its replicas", func(ctx context.Context) error {
		err := wire.RedisOrder(ctx, master.Addr(), "SET", "refused", "1")
		if err == nil {
			return errors.New("the master still accepts writes")
		}
		if !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Errorf("a write without replicas fails with %v, want NOREPLICAS", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// limit returns a context that bounds the work of servers on a loaded machine.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// acknowledged writes a key and checks that this many replicas have acknowledged
// it.
func acknowledged(t *testing.T, master *Server, key string, replicas int64) {
	t.Helper()
	want, timeout := replicas, "10000"
	if want == 0 {
		want, timeout = 1, "50" // for a replica that must not answer
	}
	conn, err := wire.Dial(limit(t), master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := wire.NewRedisConn(conn)
	if err := until(limit(t), "the master accepts a write", func(context.Context) error { // a slow machine may miss its replicas
		_, err := c.Call("SET", key, "1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Call("WAIT", strconv.FormatInt(want, 10), timeout); err != nil || got != replicas {
		t.Errorf("%v replicas have acknowledged (%v), want %d", got, err, replicas)
	}
}

// relay forwards connections to an address until it is cut.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener}
	t.Cleanup(r.cut)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			r.join(near, far)
		}
	}()
	return r
}

func (r *relay) join(near, far net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		near.Close()
		far.Close()
		return
	}
	r.conns = append(r.conns, near, far)
	pass := func(to, from net.Conn) {
		defer to.Close()
		_, _ = io.Copy(to, from) // ends when either side does
	}
	go pass(near, far)
	go pass(far, near)
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	r.Close()
	for _, conn := range r.conns {
		conn.Close()
	}
}

func TestReplicaStopsWhileItWritesItsFirstFile(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	master := Run(t, replicated(""))
	for key := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		ask(t, master, "SET "+key+" 1\r\n", "+OK")
	}
	const secondPerKey = "1000000" // in microseconds
	replica := Run(t, replicated(master.Addr()), "--rdb-key-save-delay", secondPerKey)
	if err := until(ctx, "the replica writes its file", func(ctx context.Context) error {
		info, err := wire.RedisText(ctx, replica.Addr(), "INFO")
		if err == nil && !strings.Contains(info, "aof_rewrite_in_progress:1") {
			return errors.New("the replica does not write")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := follows(ctx, replica); err == nil {
		t.Error("follows accepts a replica that still writes its first file")
	}
	try(t, replica.Stop)
}
