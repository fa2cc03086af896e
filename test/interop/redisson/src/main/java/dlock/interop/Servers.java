package dlock.interop;

import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SubscriptionMode;

/**
 * The addresses of the servers.
 *
 * <pre>
 *   redis://HOST:PORT/0
 *   redis+sentinel://HOST:PORT,HOST:PORT/MASTER
 *   redis+cluster://HOST:PORT,HOST:PORT
 * </pre>
 */
final class Servers {
  private Servers() {}

  static Config config(String url, long watchdogMillis) {
    Config config = new Config();
    config.setLockWatchdogTimeout(watchdogMillis);
    config.setThreads(4);
    config.setNettyThreads(2);
    String[] parts = url.split("://", 2);
    String[] path = parts[1].split("/", 2);
    String[] addresses = path[0].split(",");
    for (int i = 0; i < addresses.length; i++) {
      addresses[i] = "redis://" + addresses[i];
    }
    switch (parts[0]) {
      case "redis" ->
          config.useSingleServer().setAddress(addresses[0]).setConnectionMinimumIdleSize(1);
      case "redis+sentinel" -> {
        SentinelServersConfig servers = config.useSentinelServers().setMasterName(path[1]);
        // The documented default, though not the real one: the master does not count subscribers there.
        servers.setSubscriptionMode(SubscriptionMode.SLAVE);
        fewConnections(servers.addSentinelAddress(addresses));
      }
      case "redis+cluster" -> {
        ClusterServersConfig servers = config.useClusterServers();
        fewConnections(servers.addNodeAddress(addresses));
      }
      default -> throw new IllegalArgumentException("unknown scheme: " + url);
    }
    return config;
  }

  /** By default Redisson opens many connections in advance. */
  private static void fewConnections(BaseMasterSlaveServersConfig<?> servers) {
    servers.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
  }
}
