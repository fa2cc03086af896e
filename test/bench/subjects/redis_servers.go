package subjects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// redlockMembers is the number of independent servers of Redlock.
const redlockMembers = 5

func serveRedis(ctx context.Context) (*Servers, error) {
	// The disk would hide the differences between the subjects.
	s, err := start(servers.Redis, 1+redlockMembers, "--appendonly", "no")
	if err != nil {
		return nil, err
	}
	var control []*redis.Client // one for each server
	for _, addr := range s.Addrs() {
		control = append(control, redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1}))
	}
	each := func(do func(c *redis.Client) error) (err error) {
		for _, c := range control {
			err = errors.Join(err, do(c))
		}
		return err
	}
	s.disconnect = func() error { return each((*redis.Client).Close) }
	s.Empty = func(ctx context.Context) error {
		return each(func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
	}
	s.count = func(ctx context.Context) (map[string]uint64, error) {
		calls := make(map[string]uint64)
		err := each(func(c *redis.Client) error {
			info, err := c.Do(ctx, "info", "commandstats").Text()
			if err != nil {
				return err
			}
			return addCalls(calls, info)
		})
		// The benchmark's own commands.
		delete(calls, "info")
		delete(calls, "monitor")
		return calls, err
	}
	s.listen = func(ctx context.Context) (func() (map[string]float64, error), error) { return sample(ctx, s.Addrs()) }
	return s, ctx.Err()
}

var commandCount = regexp.MustCompile(`(?m)^cmdstat_([a-z_]+)(?:\|\S+?)?:calls=(\d+),`)

// addCalls adds the figures in the INFO of one server.
func addCalls(calls map[string]uint64, info string) error {
	all := commandCount.FindAllStringSubmatch(info, -1)
	for _, found := range all {
		n, err := strconv.ParseUint(found[2], 10, 64)
		if err != nil {
			return err
		}
		calls[found[1]] += n
	}
	if all == nil {
		return fmt.Errorf("INFO does not tell what was done: %s", info)
	}
	return nil
}

// sample observes the first commands of several servers. Observing all of them
// would slow the servers down.
func sample(ctx context.Context, addrs []string) (stop func() (map[string]float64, error), err error) {
	const limit = 5000
	var mu sync.Mutex // guards the maps
	asked, all := make(map[string]float64), make(map[string]float64)
	var stops []func() error
	stop = sync.OnceValues(func() (map[string]float64, error) {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
		for name, n := range all {
			asked[name] /= n
		}
		return asked, err
	})
	for _, addr := range addrs {
		left := limit
		end, err := monitor(ctx, addr, func(line string) bool {
			mu.Lock()
			defer mu.Unlock()
			addCommand(line, asked, all)
			left--
			return left > 0
		})
		if err != nil {
			_, stopErr := stop()
			return nil, errors.Join(fmt.Errorf("MONITOR: %w", err), stopErr)
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// monitor shows the commands that a server executes, until stop is called or see
// returns false.
func monitor(ctx context.Context, addr string, see func(line string) bool) (stop func() error, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(conn)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	if !lines.Scan() || lines.Text() != "+OK" {
		return nil, errors.Join(err, fmt.Errorf("the answer is %q", lines.Text()), conn.Close())
	}
	finished := make(chan error, 1)
	go func() {
		defer conn.Close()
		for lines.Scan() && see(lines.Text()) {
		}
		finished <- lines.Err()
	}()
	return func() error {
		_ = conn.Close() // a second time, perhaps
		if err := <-finished; !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}, nil
}

// monitored matches a line of MONITOR: the time, the connection or "lua", and the
// command.
var monitored = regexp.MustCompile(`^\+\S+ \[\d+ (\S+)\] "([^"]+)"`)

// addCommand counts a command that a client sent, or a script.
func addCommand(line string, asked, all map[string]float64) {
	found := monitored.FindStringSubmatch(line)
	if found == nil {
		return
	}
	name := strings.ToLower(found[2])
	all[name]++
	if found[1] != "lua" {
		asked[name]++
	}
}
