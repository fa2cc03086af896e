package subjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// redlockMembers is the number of independent servers of Redlock.
const redlockMembers = 5

// redisServers are the server of the single-server cases, followed by the members
// of Redlock.
type redisServers struct {
	servers []*servers.Server
	control []*redis.Client // one for each server
}

func serveRedis(ctx context.Context) (Served, error) {
	s := new(redisServers)
	started := make([]*servers.Server, 1+redlockMembers)
	failures := make([]error, len(started))
	var group sync.WaitGroup
	for i := range started {
		group.Go(func() {
			// The disk would hide the differences between the subjects.
			started[i], failures[i] = servers.Start(servers.Redis, "--appendonly", "no")
		})
	}
	group.Wait()
	for _, server := range started {
		if server != nil {
			s.servers = append(s.servers, server)
			s.control = append(s.control, redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1}))
		}
	}
	if err := errors.Join(ctx.Err(), errors.Join(failures...)); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *redisServers) Stop() error {
	var errs []error
	for i, server := range s.servers {
		errs = append(errs, s.control[i].Close(), server.Stop())
	}
	return errors.Join(errs...)
}

const addressFile = "redis.json"

func (s *redisServers) Prepare(ctx context.Context, dir string) error {
	var addresses []string
	for i, server := range s.servers {
		if err := s.control[i].FlushAll(ctx).Err(); err != nil {
			return err
		}
		addresses = append(addresses, server.Addr())
	}
	content, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, addressFile), content, 0o600)
}

// redisAddresses reads the file of prepare: the single server, and the members.
func redisAddresses(dir string) (single string, members []string, err error) {
	content, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return "", nil, err
	}
	var all []string
	if err := json.Unmarshal(content, &all); err != nil {
		return "", nil, err
	}
	return all[0], all[1:], nil
}

var (
	commandCount = regexp.MustCompile(`(?m)^cmdstat_([a-z_]+)(?:\|\S+?)?:calls=(\d+),`)
	cpuSeconds   = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([0-9.]+)`)
)

func (s *redisServers) Done(ctx context.Context) (Work, error) {
	all := Work{Commands: make(map[string]uint64)}
	for _, control := range s.control {
		info, err := control.Do(ctx, "info", "commandstats", "cpu").Text()
		if err != nil {
			return Work{}, err
		}
		if err := all.add(info); err != nil {
			return Work{}, err
		}
	}
	// The benchmark's own command.
	delete(all.Commands, "info")
	delete(all.Commands, "monitor")
	return all, nil
}

// Add adds the figures in the INFO of one server.
func (w *Work) add(info string) error {
	for _, found := range commandCount.FindAllStringSubmatch(info, -1) {
		calls, err := strconv.ParseUint(found[2], 10, 64)
		if err != nil {
			return err
		}
		w.Commands[found[1]] += calls
	}
	for _, found := range cpuSeconds.FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			return err
		}
		w.CPU += time.Duration(seconds * float64(time.Second))
	}
	if w.CPU == 0 || len(w.Commands) == 0 {
		return fmt.Errorf("INFO does not tell what was done: %s", info)
	}
	return nil
}
