package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// zookeeperJar refers to the other libraries that ZooKeeper needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// zookeeperTick is ZooKeeper's unit of time. A session ends within one tick after
// its timeout.
const zookeeperTick = 100 * time.Millisecond

// ZooKeeper allows sessions from two ticks to a minute. It does not wait for the
// disk, because with many servers at once a sync can take longer than a session.
// Written data survives the process all the same. It keeps empty containers, so
// that a test knows which request takes a lock: without a container it fails, and
// the client repeats it.
var ZooKeeper = zookeeperKind(time.Hour)

// ZooKeeperReaping is a ZooKeeper that removes empty containers soon.
var ZooKeeperReaping = zookeeperKind(time.Second)

func zookeeperKind(reapingInterval time.Duration) *Kind {
	return &Kind{
		Name:      "zookeeper",
		Binary:    "java",
		Configure: func(in Instance) error { return configureZooKeeper(in, "") },
		Args:      func(in Instance) []string { return zookeeperArgs(in, reapingInterval) },
		Probe:     probeZooKeeper,
		URL:       func(addr string) string { return "zookeeper://" + addr },
	}
}

func zookeeperArgs(in Instance, reapingInterval time.Duration) []string {
	return []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dzookeeper.4lw.commands.whitelist=*",
		"-Dzookeeper.admin.enableServer=false",
		"-Dzookeeper.forceSync=no",
		"-Dzookeeper.jmx.log4j.disable=true",
		fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", reapingInterval.Milliseconds()),
		"-cp", zookeeperJar + ":/usr/share/java/slf4j-simple.jar",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", zookeeperFile(in),
	}
}

func zookeeperFile(in Instance) string { return filepath.Join(in.Dir, "zoo.cfg") }

// configureZooKeeper writes the configuration. more holds the lines for members
// of an ensemble.
func configureZooKeeper(in Instance, more string) error {
	if _, err := os.Stat(zookeeperJar); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("zookeeper is not installed (no %s): run `make servers` as root, which installs it from Debian's packages (%w)",
			zookeeperJar, err)
	}
	return writeOwned(zookeeperFile(in), fmt.Sprintf(`tickTime=%d
minSessionTimeout=%d
maxSessionTimeout=60000
dataDir=%s
clientPortAddress=%s
clientPort=%d
maxClientCnxns=0
%s`, zookeeperTick.Milliseconds(), 2*zookeeperTick.Milliseconds(), in.Data, in.Host, in.Port, more))
}

// probeZooKeeper checks that the server serves clients. A server without a quorum
// answers but does not serve.
func probeZooKeeper(ctx context.Context, addr string) error {
	answer, err := fourLetters(ctx, addr, "srvr")
	if err != nil {
		return err
	}
	if !strings.Contains(answer, "Mode: ") {
		return fmt.Errorf("answer %q to srvr", strings.TrimSpace(answer))
	}
	return nil
}

// fourLetters sends one of ZooKeeper's four-letter commands.
func fourLetters(ctx context.Context, addr, question string) (string, error) {
	conn, err := wire.Dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, question); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// Monitor returns ZooKeeper's counters: zk_watch_count, zk_ephemerals_count...
func (s *Server) Monitor(ctx context.Context) (map[string]string, error) {
	answer, err := fourLetters(ctx, s.Addr(), "mntr")
	if err != nil {
		return nil, err
	}
	figures := make(map[string]string)
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			figures[name] = value
		}
	}
	return figures, nil
}
