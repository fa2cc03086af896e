package etcd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// wakeLimit is how long it takes to wake dlock on a busy machine. Without being woken it would ask
// after a quarter of its TTL, a minute.
const wakeLimit = 10 * time.Second

// contender is a lock of another program.
type contender interface {
	lock(t testing.TB)
	unlock(t testing.TB)
}

// TestInterop: other programs exclude dlock and are excluded by it, and they wake each other, with a
// current server and etcdctl and with old ones.
func TestInterop(t *testing.T) {
	t.Parallel()
	interoperate(t, map[string]func(*interopRig){
		"unfair": func(r *interopRig) { r.locks(false) },
		"fair":   func(r *interopRig) { r.locks(false, dlock.WithFair()) },
	})
}

// waitersOf returns how many waiters List reports for a lock, -1 if that is unknown.
func waitersOf(client *dlock.Client, name string) int {
	for info, err := range client.Locks(context.Background(), name) {
		if err == nil && info.Name == name {
			return info.Waiters
		}
	}
	return -1
}

// mutex is the Mutex of etcd's own package.
type mutex struct{ *concurrency.Mutex }

func newMutex(t testing.TB, server *servers.Server, key string) contender {
	t.Helper()
	session := want.Value(concurrency.NewSession(rawClient(t, server.URL())))(t)
	t.Cleanup(func() { _ = session.Close() }) // the server may be gone
	return mutex{concurrency.NewMutex(session, key)}
}

func (m mutex) lock(t testing.TB) {
	t.Helper()
	if err := m.Lock(context.Background()); err != nil {
		t.Errorf("Mutex.Lock: %v", err)
	}
}

func (m mutex) unlock(t testing.TB) {
	t.Helper()
	if err := m.Unlock(context.Background()); err != nil {
		t.Errorf("Mutex.Unlock: %v", err)
	}
}

// etcdctl runs `etcdctl lock`, which prints its key when it has the lock, and holds the lock until it
// gets a signal.
type etcdctl struct {
	server *servers.Server
	key    string
	cmd    *exec.Cmd
}

func (e *etcdctl) lock(t testing.TB) {
	t.Helper()
	cmd := exec.Command(e.server.Etcdctl(), "--endpoints", e.server.Addr(), "lock", e.key)
	cmd.Env = []string{"ETCDCTL_API=3", "PATH=/usr/bin:/bin:/usr/local/bin"}
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Errorf("etcdctl: %v (run `make servers` as root)", err)
		return
	}
	e.cmd = cmd
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, e.key+"/") {
		t.Errorf("etcdctl lock says %q, %v", line, err)
	}
}

func (e *etcdctl) unlock(t testing.TB) {
	t.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("ending etcdctl: %v", err)
	}
	_ = e.cmd.Wait() // its status is that of the signal
}

// TestRevisionOfEtcdctlIsNoToken: if etcdctl had to wait, the revision that it passes to its command is
// larger than the token of the next holder. The revision that created its key is not.
func TestRevisionOfEtcdctlIsNoToken(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	client := newClient(t, server.URL(), longTTL)
	first := lockAnyhow(t, client, "orders")

	ask := fmt.Sprintf("echo revision $ETCD_LOCK_REV; etcdctl --endpoints %s get $ETCD_LOCK_KEY -w fields", server.Addr())
	cmd := exec.CommandContext(t.Context(), "etcdctl", "--endpoints", server.Addr(), "lock", "orders", "--", "sh", "-c", ask)
	cmd.Env = []string{"ETCDCTL_API=3", "PATH=/usr/bin:/bin:/usr/local/bin"}
	var output bytes.Buffer
	cmd.Stdout = &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("etcdctl: %v (run `make servers` as root)", err)
	}
	await.Until(t, "etcdctl waits", func() bool { return waitersOf(client, "orders") == 1 })
	third := lockLater(t, client, "orders", dlock.WithFair())
	await.Until(t, "dlock waits behind etcdctl", func() bool { return waitersOf(client, "orders") == 2 })
	want.Unlock(t, first)

	if err := cmd.Wait(); err != nil {
		t.Errorf("etcdctl: %v", err)
	}
	revision, created := numberAfter(t, output.String(), "revision "), numberAfter(t, output.String(), `"CreateRevision" : `)
	lease := await.Event(t, third, "the turn of dlock")
	next := int64(tokenstep.Number(lease.Token()))
	want.Unlock(t, lease)
	if !(created < next && next < revision) {
		t.Errorf("etcdctl's key was created by %d, its revision is %d, and the next token is made of %d: docs/interop.md says otherwise", created, revision, next)
	}
}

// numberAfter returns the number after a label in the output of a program.
func numberAfter(t testing.TB, text, label string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(text, label)
	word, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		t.Fatalf("no number follows %q in %q", label, text)
	}
	return number
}

// TestOtherClientsDoNotStarveDlock: dlock gets a lock for which other clients queue all the time.
func TestOtherClientsDoNotStarveDlock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	var stop atomic.Bool
	var others sync.WaitGroup
	defer others.Wait()
	defer stop.Store(true)
	for range 3 {
		m := newMutex(t, server, "busy")
		others.Go(func() {
			for !stop.Load() {
				m.lock(t)
				<-time.After(5 * time.Millisecond)
				m.unlock(t)
			}
		})
	}
	client := newClient(t, server.URL(), longTTL)
	for range 3 {
		want.Unlock(t, want.Served(t, want.Locked(t, client, "busy"), 0))
	}
}

// TestKeyLayout: the key of a lock is that of etcd's own package. In a name '/' and '%' are escaped. The
// keys of shared holders and of permits are in the queue of the name, and a downgraded lock keeps its key.
func TestKeyLayout(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	client := newClient(t, server.URL()+"/p", longTTL)
	for name, c := range map[string]struct {
		key       string // up to the ID of the lease
		opts      []dlock.Option
		downgrade bool
	}{
		"orders": {key: "p/orders/"},
		"a/b":    {key: "p/a%2Fb/"},
		"100%":   {key: "p/100%25/"},
		"a b":    {key: "p/a b/"},
		"shared": {key: "p/shared/~shared-", opts: []dlock.Option{dlock.WithShared()}},
		"gpu/0":  {key: "p/gpu%2F0/~limit4-", opts: []dlock.Option{dlock.WithLimit(4)}},
		"config": {key: "p/config/", downgrade: true},
	} {
		lease := want.Value(client.Lock(t.Context(), name, c.opts...))(t)
		if c.downgrade {
			want.OK(t, lease.Downgrade(t.Context()))
		}
		kv := only(t, raw, c.key[:strings.LastIndex(c.key, "/")], clientv3.WithPrefix())
		if got, want := string(kv.Key), c.key+hex(kv.Lease); got != want || kv.Lease == 0 {
			t.Errorf("the key of %q is %q; want %q", name, got, want)
		}
		if uint64(kv.CreateRevision) != tokenstep.Number(lease.Token()) {
			t.Errorf("token %d; want one of the revision %d that created the key", lease.Token(), kv.CreateRevision)
		}
		if value := string(kv.Value); !strings.Contains(value, `"pid"`) || strings.HasPrefix(value, `{"dlock":"shared",`) != c.downgrade {
			t.Errorf("the holder of %q is written as %s", name, value)
		}
		want.Unlock(t, lease)
	}
}
