package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/redis/go-redis/v9"
)

// Diagnose implements driver.Diagnoser. It examines every server that has locks.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	var findings []driver.Finding
	if s.clustered.Load() && s.route.cluster == nil {
		client, err := s.checkClient(ctx)
		if err != nil {
			return nil, err
		}
		findings = append(findings, client)
	}
	servers, err := s.servers(ctx)
	if err != nil && !errors.Is(err, driver.ErrUnsupported) { // checkClient has reported it
		return nil, err
	}
	for _, server := range servers {
		found, err := s.diagnose(ctx, server)
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

func (s *Store) diagnose(ctx context.Context, server *sender) ([]driver.Finding, error) {
	clock, err := checkClock(ctx, server)
	if err != nil {
		return nil, err
	}
	scripts, err := s.checkScripts(ctx, server)
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{scripts, clock, checkEncryption(ctx, server)}
	cmd := redis.NewStringCmd(ctx, "info")
	if err := query(ctx, server, cmd); err != nil {
		if !errors.Is(err, driver.ErrDenied) {
			return nil, err
		}
		return append(findings, finding.Warning("info",
			"The user may not run INFO, so that version, eviction, persistence and replication are unknown.")), nil
	}
	info := parseInfo(cmd.Val())
	persistence, err := checkPersistence(ctx, server, info)
	if err != nil {
		return nil, err
	}
	return append(findings, checkVersion(info), checkEviction(info), persistence, s.checkReplication(info)), nil
}

// checkEncryption examines the client, which never falls back.
func checkEncryption(ctx context.Context, server *sender) driver.Finding {
	client, ok := server.client.(*redis.Client)
	if !ok {
		return finding.Warning("encryption", "Whether connections are encrypted is unknown: the client is a %T.", server.client)
	}
	address := client.Options().Addr
	if address == "FailoverClient" { // with Sentinel only the server knows
		address = ""
		cmd := redis.NewStringCmd(ctx, "client", "info")
		if query(ctx, server, cmd) == nil { // a server before 6.2 does not know it
			_, info, _ := strings.Cut(cmd.Val(), " addr=")
			address, _, _ = strings.Cut(info, " ")
		}
	}
	return finding.Encryption(client.Options().TLSConfig != nil, address, "Use TLS (rediss:// or tls=true in a URL).")
}

// endsDiagnosis reports whether an error is no finding. The command may still be under way.
func endsDiagnosis(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrClosed)
}

// checkClient examines a client that is not a *redis.ClusterClient, with a server in cluster mode.
func (s *Store) checkClient(ctx context.Context) (driver.Finding, error) {
	const check, advice = "cluster", "Use redis.NewClusterClient (redis+cluster:// in a URL)."
	if s.hidesCluster() {
		return finding.Warning(check, "The servers are in cluster mode, and the client is a %T: if one master hangs, calls to others wait for it, "+
			"locks cannot be listed, and only dlock's own releases wake waiters. Use the *redis.ClusterClient itself.", s.client), nil
	}
	masters, err := countMasters(ctx, s.route.viaClient)
	switch {
	case endsDiagnosis(ctx, err):
		return driver.Finding{}, err
	case masters > 1:
		return finding.Problem(check, "The client is for one server, and the cluster has %d masters: locks of the others fail. %s", masters, advice), nil
	//nolint:nilerr // the error is the finding
	case err != nil:
		return finding.Warning(check, "The client is for one server, and the server is in cluster mode. "+
			"Whether there are others is unknown (CLUSTER SLOTS is not permitted); their locks would fail. %s", advice), nil
	}
	return finding.Warning(check, "The client is for one server, and the server is in cluster mode. "+
		"It has all slots, so that locks work, but the client does not follow a failover. %s", advice), nil
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

// checkScripts tests whether the user may run scripts and publish.
func (s *Store) checkScripts(ctx context.Context, server *sender) (driver.Finding, error) {
	const check = "scripts"
	cmd := noRetryCmd{redis.NewCmd(ctx, "eval",
		`local r = redis.pcall('publish', ARGV[1], '0') if type(r) == 'table' then return r.err end return 'OK'`,
		0, s.channelOf("dlock-doctor"))}
	err := query(ctx, server, cmd)
	switch {
	case endsDiagnosis(ctx, err):
		return driver.Finding{}, err
	case err != nil:
		return finding.Problem(check, "Scripts cannot be run: %v", err), nil
	case cmd.Val() != "OK":
		return finding.Warning(check, "Scripts may not publish (%v): a release wakes no waiter, and waiters poll.", cmd.Val()), nil
	}
	return finding.OK(check, "Scripts run and may publish."), nil
}

// checkClock compares the server's clock with this machine's. Locks do not depend on that.
func checkClock(ctx context.Context, server *sender) (driver.Finding, error) {
	cmd := redis.NewTimeCmd(ctx, "time")
	sent := time.Now()
	if err := query(ctx, server, cmd); err != nil {
		return driver.Finding{}, err
	}
	uncertainty := time.Since(sent) / 2 // the server read its clock at any time during the call
	difference := cmd.Val().Sub(sent.Add(uncertainty)).Round(time.Millisecond)
	f := finding.OK("clock", "The server's clock is %v from this machine's.", difference)
	if difference.Abs() > time.Second+uncertainty {
		f.Level = driver.LevelWarning
		f.Message += " Locks expire by the server's clock alone, but correcting it while locks are held shortens or prolongs them."
	}
	return f, nil
}

func checkVersion(info map[string]string) driver.Finding {
	name := "Redis " + info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name = "Valkey " + v
	}
	var major, minor int
	_, _ = fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor) // Valkey has it too; zero is too old
	switch have := 100*major + minor; {
	case have < 602: // no SET GET and ZADD GT
		return finding.Problem("version", "%s is too old: 6.2 is needed.", name)
	case have < 700: // unclear errors of scripts
		return finding.Warning("version", "%s works, but 7.0 or newer is recommended: older ones say less clearly why a script failed.", name)
	}
	return finding.OK("version", "%s", name)
}

func checkEviction(info map[string]string) driver.Finding {
	const check = "eviction"
	policy, limit := info["maxmemory_policy"], "no memory limit is set, so nothing is evicted now"
	if info["maxmemory"] != "0" {
		limit = "the memory limit is " + info["maxmemory_human"]
	}
	switch {
	case policy == "noeviction":
		return finding.OK(check, "noeviction: a full server refuses to write, and forgets nothing.")
	case strings.HasPrefix(policy, "volatile-"):
		return finding.Breaking(driver.PromiseExclusion, finding.Warning(check,
			"maxmemory-policy is %s (%s): a full server evicts keys that expire, which includes every lock. A lock can then have two holders. Set noeviction.", policy, limit))
	case strings.HasPrefix(policy, "allkeys-"):
		return finding.Breaking(driver.PromiseExclusion, finding.Warning(check,
			"maxmemory-policy is %s (%s): a full server evicts any key, also locks and the counters of tokens. A lock can then have two holders. Set noeviction.", policy, limit))
	}
	return finding.Warning(check, "maxmemory-policy is %q, which dlock does not know. Set noeviction.", policy)
}

func checkPersistence(ctx context.Context, server *sender, info map[string]string) (driver.Finding, error) {
	const check = "persistence"
	if info["aof_enabled"] != "1" {
		return finding.Breaking(driver.PromiseRestart, finding.Warning(check, "The append-only file is off: a restart forgets locks, which can then have two holders. "+
			"Set appendonly yes and appendfsync always, or start a server that crashed only after the longest TTL.")), nil
	}
	config := redis.NewMapStringStringCmd(ctx, "config", "get", "appendfsync")
	if err := query(ctx, server, config); endsDiagnosis(ctx, err) {
		return driver.Finding{}, err
	}
	switch sync := config.Val()["appendfsync"]; sync {
	case "":
		return finding.Warning(check, "The append-only file is on; how often it is synced is unknown (CONFIG is not permitted). "+
			"Only appendfsync always keeps every lock."), nil
	case "always":
		return finding.OK(check, "appendfsync always: locks and tokens survive a restart."), nil
	default:
		return finding.Breaking(driver.PromiseRestart, finding.Warning(check, "appendfsync is %s: a crash of the machine forgets the locks of the last moments, "+
			"which can then have two holders. Set appendfsync always.", sync)), nil
	}
}

func (s *Store) checkReplication(info map[string]string) driver.Finding {
	const check = "replication"
	replicas, _ := strconv.Atoi(info["connected_slaves"]) // zero if absent
	switch {
	case info["role"] != "master":
		return finding.Problem(check, "The server is a replica (role %q): locks cannot be written.", info["role"])
	case replicas < s.replicas:
		return finding.Problem(check, "Replicas that have to acknowledge: %d. Connected replicas: %d. No lock can be taken.", s.replicas, replicas)
	case replicas > 0 && s.replicas == 0:
		return finding.Warning(check, "Connected replicas: %d. A failover may forget locks that they have not received yet, which can then have two holders. "+
			"Options.Replicas (replicas=1 in the URL) makes that unlikely; only a token that the resource checks prevents harm.", replicas)
	case replicas > s.replicas:
		return finding.Warning(check, "Connected replicas: %d, of which %d must acknowledge. A failover can promote another one and forget locks, "+
			"which can then have two holders; with Sentinel a planned one forgets what is granted while it runs. "+
			"Options.Replicas %d (replicas=%d in the URL) prevents that, and then no lock is granted while a replica is away.",
			replicas, s.replicas, replicas, replicas)
	case replicas > 0:
		return finding.OK(check, "Connected replicas: %d, which must all acknowledge. A failover can still promote one that is away now.", replicas)
	}
	return finding.OK(check, "No replicas: there is no failover.")
}
