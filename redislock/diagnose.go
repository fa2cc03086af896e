package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// Diagnose examines every server that has locks.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var findings []driver.Finding
	err := s.eachServer(ctx, func(ctx context.Context, server redis.UniversalClient) error {
		found, err := s.diagnose(ctx, server)
		if client, ok := server.(*redis.Client); ok && s.cluster {
			for i := range found {
				found[i].Message = client.Options().Addr + ": " + found[i].Message
			}
		}
		findings = append(findings, found...)
		return err
	})
	if err != nil {
		return nil, explain(err)
	}
	return findings, nil
}

// diagnose examines one server.
func (s *Store) diagnose(ctx context.Context, server redis.UniversalClient) ([]driver.Finding, error) {
	sent := time.Now()
	now, err := server.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{s.checkScripts(ctx, server), checkClock(now, sent, time.Now())}
	text, err := server.Info(ctx).Result()
	if err != nil {
		if !strings.HasPrefix(err.Error(), "NOPERM") {
			return nil, err
		}
		return append(findings, driver.Finding{Check: "info", Level: driver.LevelWarning,
			Message: "The user may not run INFO, so that version, eviction, persistence and replication are unknown."}), nil
	}
	info := parseInfo(text)
	return append(findings,
		checkVersion(info),
		checkEviction(info),
		checkPersistence(ctx, server, info),
		s.checkReplication(info),
	), nil
}

// parseInfo reads the lines "field:value" of INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[field] = value
		}
	}
	return info
}

// checkScripts tries what every operation needs.
func (s *Store) checkScripts(ctx context.Context, server redis.UniversalClient) driver.Finding {
	const check = "scripts"
	channel := s.channelOf("dlock-doctor")
	reply, err := server.Eval(ctx, `local r = redis.pcall('publish', ARGV[1], '0') if type(r) == 'table' then return r.err end return 'OK'`, nil, channel).Text()
	switch {
	case err != nil:
		return driver.Finding{Check: check, Level: driver.LevelProblem, Message: "Scripts cannot be run: " + explain(err).Error()}
	case reply != "OK":
		return driver.Finding{Check: check, Level: driver.LevelWarning,
			Message: "Scripts may not publish (" + reply + "): nobody is woken by a release, and waiters find out by themselves."}
	}
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: "Scripts run and may publish."}
}

// checkClock compares the server's clock with this machine's. Locks do not depend
// on it.
func checkClock(server, sent, received time.Time) driver.Finding {
	difference := server.Sub(sent.Add(received.Sub(sent) / 2)).Round(time.Millisecond)
	f := driver.Finding{Check: "clock", Level: driver.LevelOK, Message: fmt.Sprintf("The server's clock is %v from this machine's.", difference)}
	if difference.Abs() > time.Second {
		f.Level = driver.LevelWarning
		f.Message += " Locks expire by the server's clock alone, but a clock that is set right while locks are held ends or prolongs them."
	}
	return f
}

// oldest is the first version that knows SET GET and ZADD GT.
var oldest = [2]int{6, 2}

func checkVersion(info map[string]string) driver.Finding {
	const check = "version"
	name, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	parts := strings.SplitN(info["redis_version"], ".", 3)
	var have [2]int
	for i := range min(len(parts), 2) {
		have[i], _ = strconv.Atoi(parts[i]) // not a number is too old
	}
	if have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1] {
		return driver.Finding{Check: check, Level: driver.LevelProblem,
			Message: fmt.Sprintf("%s %s is too old: %d.%d is needed.", name, version, oldest[0], oldest[1])}
	}
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: name + " " + version}
}

func checkEviction(info map[string]string) driver.Finding {
	policy, limit := info["maxmemory_policy"], "no memory limit is set, so nothing is evicted now"
	if info["maxmemory"] != "0" {
		limit = "the memory limit is " + info["maxmemory_human"]
	}
	f := driver.Finding{Check: "eviction", Level: driver.LevelOK, Message: "noeviction: a full server refuses to write, and forgets nothing."}
	switch {
	case policy == "noeviction":
	case strings.HasPrefix(policy, "volatile-"):
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("maxmemory-policy is %s (%s): a full server evicts keys that expire, which is every lock. Two can then hold it. Set noeviction.", policy, limit)
	case strings.HasPrefix(policy, "allkeys-"):
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("maxmemory-policy is %s (%s): a full server evicts any key, locks as well as the counters of tokens. Two can then hold a lock. Set noeviction.", policy, limit)
	default:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("maxmemory-policy is %q, which dlock does not know. Set noeviction.", policy)
	}
	return f
}

func checkPersistence(ctx context.Context, server redis.UniversalClient, info map[string]string) driver.Finding {
	f := driver.Finding{Check: "persistence", Level: driver.LevelWarning}
	if info["aof_enabled"] != "1" {
		f.Message = "The append-only file is off: a restart forgets locks, and two can hold one. Set appendonly yes and appendfsync always, " +
			"or start a server that crashed only after the longest TTL."
		return f
	}
	config, err := server.ConfigGet(ctx, "appendfsync").Result()
	switch sync := config["appendfsync"]; {
	case err != nil || sync == "":
		f.Message = "The append-only file is on; how often it is synced cannot be seen (CONFIG is not permitted). Only appendfsync always keeps every lock."
	case sync == "always":
		f.Level = driver.LevelOK
		f.Message = "appendfsync always: locks and tokens survive a restart."
	default:
		f.Message = fmt.Sprintf("appendfsync is %s: a crash of the machine forgets the locks of the last moments, and two can hold one. Set appendfsync always.", sync)
	}
	return f
}

func (s *Store) checkReplication(info map[string]string) driver.Finding {
	f := driver.Finding{Check: "replication", Level: driver.LevelOK}
	replicas, _ := strconv.Atoi(info["connected_slaves"]) // absent is none
	switch {
	case info["role"] != "master":
		f.Level = driver.LevelProblem
		f.Message = fmt.Sprintf("The server is a replica (role %q): locks cannot be written.", info["role"])
	case replicas < s.replicas:
		f.Level = driver.LevelProblem
		f.Message = fmt.Sprintf("%d replicas have to acknowledge, and %d are connected: no lock can be taken.", s.replicas, replicas)
	case replicas > 0 && s.replicas == 0:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("%d replicas. A failover may forget locks that they have not received yet, and two can hold one. "+
			"Options.Replicas (replicas=1 in the URL) makes that unlikely; only a token that the resource checks prevents harm.", replicas)
	case replicas > 0:
		f.Message = fmt.Sprintf("%d replicas, %d have to acknowledge. A failover can still promote one that has not.", replicas, s.replicas)
	default:
		f.Message = "No replicas: there is no failover."
	}
	return f
}
