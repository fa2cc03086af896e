package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// MasterName is the sentinels' name for the master.
const MasterName = "dlock"

// SentinelOptions are the options of a Sentinel. The zero value is valid.
type SentinelOptions struct {
	// Args are additional arguments of the master and the replicas, such as
	// "--min-replicas-to-write", "1".
	Args []string

	// ReplicaOf maps the address of the master to the address that the replicas
	// connect to instead: that of a proxy, which the test can cut. The sentinels
	// and the clients still reach the master directly. It applies to the first
	// master only: the replicas learn of the next master from the sentinels.
	//
	// A replica whose link has been down for six seconds (ten times the time
	// after which a server counts as down) is not promoted any more. A replica
	// whose link merely hangs is. After half a minute the sentinels notice that
	// the replicas connect to an address that is not the master's, and correct
	// it.
	ReplicaOf func(masterAddr string) string
}

const (
	sentinelCount = 3
	replicaCount  = 2
	quorum        = sentinelCount/2 + 1

	// downAfter is when the first sentinel considers a server down. Each further
	// sentinel waits a little longer. If all of them noticed at once, each would
	// vote for itself, and the next election would be much later.
	downAfter     = 600 * time.Millisecond
	downAfterMore = 500 * time.Millisecond
	// failoverTimeout is how long the sentinels wait before they retry a failed
	// failover, and before they correct a replica that follows the wrong master.
	failoverTimeout          = 2 * time.Second
	failoverTimeoutReplicaOf = 30 * time.Second
)

// Sentinel is a master with two replicas, and three sentinels that promote a
// replica one or two seconds after the master has died.
type Sentinel struct {
	Servers   Group // the first server is the first master
	Sentinels Group
}

// RunSentinel starts a Sentinel for a test, and stops it when the test ends.
func RunSentinel(t testing.TB, opts SentinelOptions) *Sentinel {
	t.Helper()
	return keep(StartSentinel(opts))(t)
}

// StartSentinel starts a Sentinel and waits until it has settled.
func StartSentinel(opts SentinelOptions) (*Sentinel, error) {
	s := new(Sentinel)
	if err := s.start(opts); err != nil {
		return nil, errors.Join(s.all().withLogs(err), s.Stop())
	}
	return s, nil
}

func (s *Sentinel) start(opts SentinelOptions) error {
	master, err := Start(replicated(""), opts.Args...)
	if err != nil {
		return err
	}
	s.Servers = Group{master}
	replicaOf, timeout := master.Addr(), failoverTimeout
	if opts.ReplicaOf != nil {
		replicaOf, timeout = opts.ReplicaOf(master.Addr()), failoverTimeoutReplicaOf
	}
	replicas, err := startEach(replicaCount, func(int) (*Server, error) {
		return Start(replicated(replicaOf), opts.Args...)
	})
	if err != nil {
		return err
	}
	s.Servers = append(s.Servers, replicas...)
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	// A sentinel asks the master for its replicas at once, and then not again for
	// a while. Therefore the replicas must be there first.
	if err := until(ctx, "the replicas are in sync", s.inSync(master)); err != nil {
		return err
	}
	s.Sentinels, err = startEach(sentinelCount, func(i int) (*Server, error) {
		return Start(watching(master, downAfter+time.Duration(i)*downAfterMore, timeout))
	})
	if err != nil {
		return err
	}
	return s.WaitSettled(ctx)
}

// URL returns a URL with the addresses of the sentinels.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + s.Sentinels.list() + "/" + MasterName
}

// Stop stops all servers and sentinels.
func (s *Sentinel) Stop() error { return s.all().Stop() }

// Master returns the master that the sentinels name. A majority of them must
// answer, and all answers must agree.
func (s *Sentinel) Master(ctx context.Context) (*Server, error) {
	named := make(map[string]int)
	var failures error
	for _, sentinel := range s.Sentinels.running() {
		answer, err := wire.Redis(ctx, sentinel.Addr(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if failures = errors.Join(failures, err); err == nil {
			named[strings.Join(answer, ":")]++
		}
	}
	for addr, n := range named {
		if master := s.Servers.At(addr); master != nil && n >= quorum && len(named) == 1 {
			return master, nil
		}
	}
	return nil, fmt.Errorf("the sentinels name %v, want one of %v, by %d of them (%w)", named, s.Servers.Addrs(), quorum, failures)
}

// WaitFailover waits until the sentinels name another master than old, and
// returns it.
func (s *Sentinel) WaitFailover(ctx context.Context, old *Server) (*Server, error) {
	return awaitMaster(ctx, old, s.Master)
}

// WaitSettled waits until all servers run, the replicas have the data of the
// master, and the sentinels know all servers and each other.
func (s *Sentinel) WaitSettled(ctx context.Context) error {
	return until(ctx, "master, replicas and sentinels have found each other", func(ctx context.Context) error {
		master, err := s.Master(ctx)
		if err != nil {
			return err
		}
		if err := s.inSync(master)(ctx); err != nil {
			return err
		}
		for _, addr := range s.Sentinels.Addrs() {
			if err := knowsAll(ctx, addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// inSync returns a check that all other servers follow the master.
func (s *Sentinel) inSync(master *Server) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, server := range s.Servers {
			if server == master {
				continue
			}
			if err := follows(ctx, server); err != nil {
				return err
			}
		}
		info, err := wire.RedisText(ctx, master.Addr(), "INFO", "replication")
		if err != nil {
			return err
		}
		if online := strings.Count(info, "state=online"); online != len(s.Servers)-1 {
			return fmt.Errorf("the master has %d replicas in sync, want %d", online, len(s.Servers)-1)
		}
		return nil
	}
}

// follows checks that a server is a replica whose link works and which has
// started its append-only file. While it writes the first one it could lose all
// its data.
func follows(ctx context.Context, s *Server) error {
	info, err := wire.RedisText(ctx, s.Addr(), "INFO")
	if err != nil {
		return err
	}
	for _, want := range []string{"master_link_status:up", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"} {
		if !strings.Contains(info, want) {
			return fmt.Errorf("%s does not report %s", s.Addr(), want)
		}
	}
	return nil
}

// knowsAll checks that a sentinel could lead a failover.
func knowsAll(ctx context.Context, sentinel string) error {
	for what, want := range map[string]map[string]string{
		"MASTER": {
			"flags":               "master",
			"num-slaves":          strconv.Itoa(replicaCount),
			"num-other-sentinels": strconv.Itoa(sentinelCount - 1),
		},
		"REPLICAS":  {"flags": "slave"},
		"SENTINELS": {"flags": "sentinel"},
	} {
		answer, err := wire.Redis(ctx, sentinel, "SENTINEL", what, MasterName)
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(answer); i += 2 { // keys and values of one or several servers
			if value, known := want[answer[i]]; known && value != answer[i+1] {
				return fmt.Errorf("sentinel %s reports of %s: %s %s, want %s", sentinel, what, answer[i], answer[i+1], value)
			}
		}
	}
	return nil
}

func (s *Sentinel) all() Group {
	return append(append(Group(nil), s.Servers...), s.Sentinels...)
}

// replicated is a Redis that stores changes of its role in its configuration
// file, so that it keeps its role after a restart. The role is not data: it
// survives RestartEmpty.
func replicated(master string) *Kind {
	kind := *Redis
	file := func(in Instance) string { return filepath.Join(in.Dir, "redis.conf") }
	kind.Init = func(in Instance) ([]Command, error) {
		if _, err := os.Stat(file(in)); !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		var config string
		if master != "" {
			config = "replicaof " + words(master) + "\n"
		}
		return nil, writeOwned(file(in), config)
	}
	kind.Args = func(in Instance) []string {
		args := append([]string{file(in)}, Redis.Args(in)...)
		return append(args, replication...)
	}
	return &kind
}

// replication holds settings without which tests would wait: for more replicas to
// connect, for paused replicas to catch up before their master stops, and for a
// replica that does not stop while it writes its first file.
var replication = []string{
	"--repl-diskless-sync-delay", "0",
	"--shutdown-on-sigterm", "now", "force",
}

// watching is a sentinel. Its configuration file is also its state: it survives a
// restart, but not RestartEmpty.
func watching(master *Server, downAfter, failoverTimeout time.Duration) *Kind {
	file := func(in Instance) string { return filepath.Join(in.Data, "sentinel.conf") }
	return &Kind{
		Name:   "sentinel",
		Binary: Redis.Binary,
		Init: func(in Instance) ([]Command, error) {
			return nil, writeOwned(file(in), fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]d
sentinel down-after-milliseconds %[1]s %[4]d
sentinel failover-timeout %[1]s %[5]d
sentinel parallel-syncs %[1]s %[6]d
`, MasterName, words(master.Addr()), quorum, downAfter.Milliseconds(), failoverTimeout.Milliseconds(), replicaCount))
		},
		Args: func(in Instance) []string {
			return []string{file(in), "--sentinel", "--bind", in.Host, "--port", strconv.Itoa(in.Port), "--dir", in.Data}
		},
		Probe: func(ctx context.Context, addr string) error {
			// Milliseconds between announcements, INFO requests, reconnects, and
			// questions to the other sentinels. The defaults are too slow for
			// such a short downAfter. There is no setting for them, and a
			// restarted sentinel has forgotten them.
			const hurry = "SENTINEL DEBUG publish-period 200 info-period 500 ping-period 300 ask-period 200\r\n"
			return wire.Exchange(ctx, addr, hurry, "+OK\r\n")
		},
		URL: func(addr string) string { return "redis+sentinel://" + addr + "/" + MasterName },
	}
}

// writeOwned writes a file that the server may change.
func writeOwned(name, content string) error {
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		return err
	}
	return own(name, 0o600)
}

// words returns an address in the form of Redis's settings and commands.
func words(addr string) string { return strings.ReplaceAll(addr, ":", " ") }
