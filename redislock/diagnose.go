package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	if s.cluster.Load() && s.route.cluster == nil {
		finding, err := s.checkClient(ctx)
		if err != nil {
			return nil, err
		}
		findings = append(findings, finding)
	}
	servers, err := s.servers(ctx)
	if err != nil && !errors.Is(err, driver.ErrUnsupported) { // which checkClient has said
		return nil, err
	}
	for _, server := range servers {
		found, err := s.diagnose(ctx, server.sender)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if server.addr != "" {
				f.Message = server.addr + ": " + f.Message
			}
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// diagnose examines one server.
func (s *Store) diagnose(ctx context.Context, server *sender) ([]driver.Finding, error) {
	clock, err := checkClock(ctx, server)
	if err != nil {
		return nil, err
	}
	scripts, err := s.checkScripts(ctx, server)
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{scripts, clock}
	cmd := command{redis.NewCmd(ctx, "info")}
	if err := askOne(ctx, server, cmd); err != nil {
		if cmd.Err() == nil || !strings.HasPrefix(cmd.Err().Error(), "NOPERM") {
			return nil, err
		}
		return append(findings, driver.Finding{Check: "info", Level: driver.LevelWarning,
			Message: "The user may not run INFO, so that version, eviction, persistence and replication are unknown."}), nil
	}
	text, _ := cmd.Val().(string)
	info := parseInfo(text)
	persistence, err := checkPersistence(ctx, server, info)
	if err != nil {
		return nil, err
	}
	return append(findings, checkVersion(info), checkEviction(info), persistence, s.checkReplication(info)), nil
}

// checkClient examines a client that is not one of Cluster, for a server in cluster
// mode.
func (s *Store) checkClient(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Check: "cluster", Level: driver.LevelWarning}
	if s.hidden() {
		f.Message = fmt.Sprintf("The servers are in cluster mode, and the client is a %T: if one master hangs, calls to others wait for it, "+
			"locks cannot be listed, and only dlock's own releases wake waiters. Use the *redis.ClusterClient itself.", s.client)
		return f, nil
	}
	masters, err := countMasters(ctx, s.route.all)
	switch {
	case ctx.Err() != nil, errors.Is(err, driver.ErrUnreachable), errors.Is(err, driver.ErrClosed):
		return driver.Finding{}, err
	case masters > 1:
		f.Level = driver.LevelProblem
		f.Message = fmt.Sprintf("The client is for one server, and the cluster has %d masters: locks of the others fail.", masters)
	case err != nil:
		f.Message = "The client is for one server, and the server is in cluster mode. Whether there are others cannot be seen (CLUSTER SLOTS is not permitted); " +
			"their locks would fail."
	default:
		f.Message = "The client is for one server, and the server is in cluster mode. It has all slots, so that locks work, but the client does not follow a failover."
	}
	f.Message += " Use redis.NewClusterClient (redis+cluster:// in a URL)."
	return f, nil
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
func (s *Store) checkScripts(ctx context.Context, server *sender) (driver.Finding, error) {
	const check = "scripts"
	cmd := command{redis.NewCmd(ctx, "eval",
		`local r = redis.pcall('publish', ARGV[1], '0') if type(r) == 'table' then return r.err end return 'OK'`,
		0, s.channelOf("dlock-doctor"))}
	err := askOne(ctx, server, cmd)
	switch {
	case ctx.Err() != nil, errors.Is(err, driver.ErrUnreachable), errors.Is(err, driver.ErrClosed):
		return driver.Finding{}, err // the command may still be under way
	case err != nil:
		return driver.Finding{Check: check, Level: driver.LevelProblem, Message: "Scripts cannot be run: " + err.Error()}, nil //nolint:nilerr // it is the finding
	case cmd.Val() != "OK":
		return driver.Finding{Check: check, Level: driver.LevelWarning,
			Message: fmt.Sprintf("Scripts may not publish (%v): nobody is woken by a release, and waiters find out by themselves.", cmd.Val())}, nil
	}
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: "Scripts run and may publish."}, nil
}

// checkClock compares the server's clock with this machine's. Locks do not depend
// on it.
func checkClock(ctx context.Context, server *sender) (driver.Finding, error) {
	cmd := command{redis.NewCmd(ctx, "time")}
	sent := time.Now()
	if err := askOne(ctx, server, cmd); err != nil {
		return driver.Finding{}, err
	}
	received := time.Now()
	parts, _ := cmd.Int64Slice() // what is no clock is far from ours
	var clock time.Time
	if len(parts) == 2 {
		clock = time.Unix(parts[0], parts[1]*1000)
	}
	difference := clock.Sub(sent.Add(received.Sub(sent) / 2)).Round(time.Millisecond)
	f := driver.Finding{Check: "clock", Level: driver.LevelOK, Message: fmt.Sprintf("The server's clock is %v from this machine's.", difference)}
	if difference.Abs() > time.Second {
		f.Level = driver.LevelWarning
		f.Message += " Locks expire by the server's clock alone, but a clock that is set right while locks are held ends or prolongs them."
	}
	return f, nil
}

// release is the major and minor number of a version.
type release [2]int

var (
	// oldest knows SET GET and ZADD GT.
	oldest = release{6, 2}
	// recommended tells why a command in a script failed.
	recommended = release{7, 0}
)

func (r release) before(other release) bool { return slices.Compare(r[:], other[:]) < 0 }

func (r release) String() string { return fmt.Sprintf("%d.%d", r[0], r[1]) }

func checkVersion(info map[string]string) driver.Finding {
	name, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	// Valkey tells the version of Redis that it is compatible with, too.
	parts := strings.SplitN(info["redis_version"], ".", 3)
	var have release
	for i := range min(len(parts), 2) {
		have[i], _ = strconv.Atoi(parts[i]) // not a number is too old
	}
	f := driver.Finding{Check: "version", Level: driver.LevelOK, Message: name + " " + version}
	switch {
	case have.before(oldest):
		f.Level = driver.LevelProblem
		f.Message += fmt.Sprintf(" is too old: %v is needed.", oldest)
	case have.before(recommended):
		f.Level = driver.LevelWarning
		f.Message += fmt.Sprintf(" works, but %v or newer is recommended: older ones say less clearly why a script failed.", recommended)
	}
	return f
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
		f.Level, f.Breaks = driver.LevelWarning, driver.PromiseExclusion
		f.Message = fmt.Sprintf("maxmemory-policy is %s (%s): a full server evicts keys that expire, which is every lock. Two can then hold it. Set noeviction.", policy, limit)
	case strings.HasPrefix(policy, "allkeys-"):
		f.Level, f.Breaks = driver.LevelWarning, driver.PromiseExclusion
		f.Message = fmt.Sprintf("maxmemory-policy is %s (%s): a full server evicts any key, locks as well as the counters of tokens. Two can then hold a lock. Set noeviction.", policy, limit)
	default:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("maxmemory-policy is %q, which dlock does not know. Set noeviction.", policy)
	}
	return f
}

// settings is CONFIG GET. Like a command it is not repeated by the client.
type settings struct{ *redis.MapStringStringCmd }

// NoRetry tells the client so.
func (settings) NoRetry() bool { return true }

func checkPersistence(ctx context.Context, server *sender, info map[string]string) (driver.Finding, error) {
	f := driver.Finding{Check: "persistence", Level: driver.LevelWarning}
	if info["aof_enabled"] != "1" {
		f.Breaks = driver.PromiseRestart
		f.Message = "The append-only file is off: a restart forgets locks, and two can hold one. Set appendonly yes and appendfsync always, " +
			"or start a server that crashed only after the longest TTL."
		return f, nil
	}
	config := settings{redis.NewMapStringStringCmd(ctx, "config", "get", "appendfsync")}
	if err := ask(ctx, server, config); err != nil {
		return driver.Finding{}, err
	}
	switch sync := config.Val()["appendfsync"]; sync {
	case "":
		f.Message = "The append-only file is on; how often it is synced cannot be seen (CONFIG is not permitted). Only appendfsync always keeps every lock."
	case "always":
		f.Level = driver.LevelOK
		f.Message = "appendfsync always: locks and tokens survive a restart."
	default:
		f.Breaks = driver.PromiseRestart
		f.Message = fmt.Sprintf("appendfsync is %s: a crash of the machine forgets the locks of the last moments, and two can hold one. Set appendfsync always.", sync)
	}
	return f, nil
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
		f.Message = fmt.Sprintf("Replicas that have to acknowledge: %d. Connected replicas: %d. No lock can be taken.", s.replicas, replicas)
	case replicas > 0 && s.replicas == 0:
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("Connected replicas: %d. A failover may forget locks that they have not received yet, and two can hold one. "+
			"Options.Replicas (replicas=1 in the URL) makes that unlikely; only a token that the resource checks prevents harm.", replicas)
	case replicas > 0:
		f.Message = fmt.Sprintf("Connected replicas: %d, of which %d must acknowledge. A failover can still promote one that has not.", replicas, s.replicas)
	default:
		f.Message = "No replicas: there is no failover."
	}
	return f
}
