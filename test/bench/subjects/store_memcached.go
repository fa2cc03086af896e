package subjects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var memcachedStore = Store{
	Name:      "memcached",
	Open:      openMemcached,
	Serve:     serveMemcached,
	Processes: true,
	Held:      10_000,
	Subjects: []Subject{
		{Name: "raw", Open: openRawMemcached},
		direct("store", openMemcached, millisecond).only("solo", "many"),
		library("dlock", openMemcached),
	},
}

const memcachedFile = "memcached.addr"

func memcachedAddr(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, memcachedFile))
	return string(content), err
}

func openMemcached(dir string) (func(context.Context) (opened, error), error) {
	addr, err := memcachedAddr(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (opened, error) {
		s, err := memcachelock.New(addr, &memcachelock.Options{RestartDelay: -1})
		return opened{s, func() error { return nil }}, err
	}, nil
}

// rawMemcached is the floor: add and delete, over the most common client.
type rawMemcached struct{ client *memcache.Client }

func openRawMemcached(dir string) (func(context.Context) (Client, error), error) {
	addr, err := memcachedAddr(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (Client, error) {
		c := memcache.New(addr)
		c.Timeout, c.MaxIdleConns = 5*time.Second, 64
		return &rawMemcached{c}, nil
	}, nil
}

func (c *rawMemcached) Worker(_ context.Context, name string) (Worker, error) {
	return &rawMemcachedWorker{c.client, &memcache.Item{
		Key: name, Value: []byte(driver.NewOwner().Hex()), Expiration: int32(dlock.DefaultTTL.Seconds()),
	}}, nil
}

func (c *rawMemcached) Commands() (uint64, bool) { return 0, false }
func (c *rawMemcached) Close() error             { return c.client.Close() }

type rawMemcachedWorker struct {
	client *memcache.Client
	item   *memcache.Item
}

func (w *rawMemcachedWorker) Lock(ctx context.Context) error {
	for {
		err := w.client.Add(w.item)
		if !errors.Is(err, memcache.ErrNotStored) {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawMemcachedWorker) Unlock(context.Context) error { return w.client.Delete(w.item.Key) }

// memcachedServer is the server, and a connection for its statistics.
type memcachedServer struct {
	server  *servers.Server
	control net.Conn
	in      *bufio.Reader
}

func serveMemcached(ctx context.Context) (Served, error) {
	server, err := servers.Start(servers.Memcached)
	if err != nil {
		return nil, err
	}
	control, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr())
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &memcachedServer{server, control, bufio.NewReader(control)}, nil
}

func (s *memcachedServer) Stop() error { return errors.Join(s.control.Close(), s.server.Stop()) }

func (s *memcachedServer) Prepare(_ context.Context, dir string) error {
	if _, err := fmt.Fprint(s.control, "flush_all\r\n"); err != nil {
		return err
	}
	if _, err := s.in.ReadString('\n'); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, memcachedFile), []byte(s.server.Addr()), 0o600)
}

// counters are the statistics that the commands of the subjects raise.
var counters = []string{"cmd_get", "cmd_set", "delete_hits", "delete_misses"}

func (s *memcachedServer) Done(context.Context) (Work, error) {
	if _, err := fmt.Fprint(s.control, "stats\r\n"); err != nil {
		return Work{}, err
	}
	stats := make(map[string]string)
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return Work{}, err
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			break
		}
		stats[fields[1]] = fields[2]
	}
	w := Work{Commands: make(map[string]uint64)}
	for _, name := range counters {
		n, err := strconv.ParseUint(stats[name], 10, 64)
		if err != nil {
			return Work{}, fmt.Errorf("memcached reports %s as %q", name, stats[name])
		}
		w.Commands[name] = n
	}
	for _, name := range []string{"rusage_user", "rusage_system"} {
		seconds, err := strconv.ParseFloat(stats[name], 64)
		if err != nil {
			return Work{}, fmt.Errorf("memcached reports %s as %q", name, stats[name])
		}
		w.CPU += time.Duration(seconds * float64(time.Second))
	}
	return w, nil
}

// Listen observes nothing: there are no scripts, so all commands come from
// clients.
func (s *memcachedServer) Listen(context.Context) (func() (map[string]float64, error), error) {
	return func() (map[string]float64, error) { return nil, nil }, nil
}
