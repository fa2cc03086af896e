package etcd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/servers"
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
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			interoperateOn(t, servers.Run(t, kind))
		})
	}
}

func interoperateOn(t *testing.T, server *servers.Server) {
	t.Helper()
	for kind, start := range map[string]func(t testing.TB, key string) contender{
		"concurrency.Mutex": func(t testing.TB, key string) contender { return newMutex(t, server, key) },
		"etcdctl lock":      func(_ testing.TB, key string) contender { return &etcdctl{server: server, key: key} },
	} {
		for how, opts := range map[string][]dlock.Option{"unfair": nil, "fair": {dlock.WithFair()}} {
			t.Run(kind+" "+how, func(t *testing.T) {
				t.Parallel()
				name := strings.ReplaceAll(kind+"-"+how, " ", "-")
				client := newClient(t, server.URL()+"/shop", time.Minute)
				other := start(t, "shop/"+name)
				interoperate(t, client, name, other, opts)
			})
		}
	}
}

func interoperate(t *testing.T, client *dlock.Client, name string, other contender, opts []dlock.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	other.lock(t)
	_, err := client.TryLock(ctx, name, opts...)
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok || held.Token == 0 {
		t.Fatalf("TryLock while the other program holds the lock: %v", err)
	}
	got := make(chan *dlock.Lease, 1)
	go func() {
		lease, err := client.Lock(ctx, name, opts...)
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- lease
	}()
	eventually(t, "dlock waits", func() bool { return waitersOf(client, name) == 1 })
	other.unlock(t)
	released := time.Now()
	lease := <-got
	if lease == nil {
		t.FailNow()
	}
	if took := time.Since(released); took > wakeLimit {
		t.Errorf("dlock had the lock %v after the other program released it", took)
	}
	if lease.Token() <= held.Token {
		t.Errorf("token %d after the other's %d", lease.Token(), held.Token)
	}

	served := make(chan struct{})
	go func() { defer close(served); other.lock(t) }()
	eventually(t, "the other program waits", func() bool { return waitersOf(client, name) == 1 })
	select {
	case <-served:
		t.Fatal("the other program got a lock that dlock holds")
	case <-time.After(200 * time.Millisecond):
	}
	unlock(t, lease)
	happens(t, served) // without being woken the other program would wait for ever
	if _, err := client.TryLock(ctx, name, opts...); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock while the other program holds the lock again: %v", err)
	}
	other.unlock(t)
	eventually(t, "the lock is free", func() bool {
		lease, err := client.TryLock(ctx, name, opts...)
		if err == nil {
			unlock(t, lease)
		}
		return err == nil
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
	session, err := concurrency.NewSession(rawClient(t, server.URL()))
	if err != nil {
		t.Fatal(err)
	}
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
	eventually(t, "etcdctl waits", func() bool { return waitersOf(client, "orders") == 1 })
	third := make(chan *dlock.Lease, 1)
	go func() {
		lease, err := client.Lock(t.Context(), "orders", dlock.WithFair())
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		third <- lease
	}()
	eventually(t, "dlock waits behind etcdctl", func() bool { return waitersOf(client, "orders") == 2 })
	unlock(t, first)

	if err := cmd.Wait(); err != nil {
		t.Errorf("etcdctl: %v", err)
	}
	revision, created := numberAfter(t, output.String(), "revision "), numberAfter(t, output.String(), `"CreateRevision" : `)
	lease := <-third
	if lease == nil {
		t.FailNow()
	}
	next := int64(tokenstep.Number(lease.Token()))
	unlock(t, lease)
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
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stop := make(chan struct{})
	done := make(chan struct{})
	const others = 3
	for range others {
		m := newMutex(t, server, "busy")
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				m.lock(t)
				<-time.After(5 * time.Millisecond)
				m.unlock(t)
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	client := newClient(t, server.URL(), longTTL)
	for range 3 {
		lease, err := client.Lock(ctx, "busy")
		if err != nil {
			t.Errorf("Lock: %v", err)
			break
		}
		unlock(t, lease)
	}
	close(stop)
	for range others {
		<-done
	}
}

// TestKeyLayout: the key of a lock is that of etcd's own package. In a name '/' and '%' are escaped.
func TestKeyLayout(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	store, err := etcdlock.New(raw, &etcdlock.Options{Prefix: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()
	for name, key := range map[string]string{"orders": "p/orders/", "a/b": "p/a%2Fb/", "100%": "p/100%25/", "a b": "p/a b/"} {
		lease, err := client.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := raw.Get(t.Context(), key, clientv3.WithPrefix())
		if err != nil || len(reply.Kvs) != 1 {
			t.Fatalf("keys that begin with %q: %v, %v", key, reply, err)
		}
		kv := reply.Kvs[0]
		if got, want := string(kv.Key), key+hex(kv.Lease); got != want || kv.Lease == 0 {
			t.Errorf("the key of %q is %q; want %q", name, got, want)
		}
		if uint64(kv.CreateRevision) != tokenstep.Number(lease.Token()) {
			t.Errorf("token %d; want one of the revision %d that created the key", lease.Token(), kv.CreateRevision)
		}
		if !strings.Contains(string(kv.Value), `"pid"`) {
			t.Errorf("the holder is written as %q", kv.Value)
		}
		unlock(t, lease)
	}
}
