package subjects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
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

var openMemcached = byURL(memcachelock.Open, "memcached://SERVER", &memcachelock.Options{RestartDelay: -1})

// openRawMemcached opens the floor: add and delete, over the most common client.
func openRawMemcached(_ context.Context, at Place) (*Client, error) {
	c := memcache.New(at.Addrs[0])
	c.Timeout, c.MaxIdleConns = 5*time.Second, 64
	newWorker := func(name string) Worker {
		item := &memcache.Item{Key: name, Value: []byte(driver.NewOwner().Hex()), Expiration: int32(dlock.DefaultTTL.Seconds())}
		return Worker{
			Lock: polling(func(context.Context) (bool, error) {
				err := c.Add(item)
				if errors.Is(err, memcache.ErrNotStored) {
					return false, nil
				}
				return err == nil, err
			}),
			Unlock: func(context.Context) error { return c.Delete(name) },
		}
	}
	return &Client{Worker: workers(newWorker), Close: c.Close}, nil
}

func serveMemcached(ctx context.Context) (*Servers, error) {
	s, err := start(servers.Memcached, 1)
	if err != nil {
		return nil, err
	}
	control, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addrs()[0])
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	lines := bufio.NewScanner(control)
	s.disconnect = control.Close
	s.Empty = func(context.Context) error {
		_, err := fmt.Fprint(control, "flush_all\r\n")
		lines.Scan() // "OK"
		return errors.Join(err, lines.Err())
	}
	s.count = func(context.Context) (map[string]uint64, error) {
		if _, err := fmt.Fprint(control, "stats\r\n"); err != nil {
			return nil, err
		}
		calls := make(map[string]uint64)
		for lines.Scan() && lines.Text() != "END" {
			words := strings.Fields(lines.Text()) // STAT name value
			if len(words) != 3 {
				continue
			}
			switch name := words[1]; name {
			case "cmd_get", "cmd_set", "delete_hits", "delete_misses": // which the subjects raise
				if calls[name], err = strconv.ParseUint(words[2], 10, 64); err != nil {
					return nil, err
				}
			}
		}
		if len(calls) != 4 {
			return nil, errors.Join(fmt.Errorf("memcached counts only %v", calls), lines.Err())
		}
		return calls, nil
	}
	return s, nil
}
