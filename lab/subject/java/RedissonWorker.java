import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A process that locks with Redisson's RLock, or with its RFencedLock if the argument is "fenced". */
final class RedissonWorker {
  private RedissonWorker() {}

  public static void main(String[] args) throws Exception {
    Config config = new Config();
    config.setLockWatchdogTimeout(Worker.ttlMillis());
    config.setThreads(4);
    config.setNettyThreads(2);
    config.useSingleServer()
        .setAddress(Worker.config("url").replaceFirst("/0$", ""))
        .setConnectionMinimumIdleSize(1)
        .setSubscriptionConnectionMinimumIdleSize(1);
    RedissonClient redisson = Redisson.create(config);
    String name = Worker.config("name");
    boolean fenced = args.length > 0 && args[0].equals("fenced");
    Worker.run(limit -> fenced ? lock(redisson.getFencedLock(name), limit) : lock(redisson.getLock(name), limit));
  }

  private static Worker.Held lock(RLock lock, long limitMillis) throws Exception {
    // Without a lease time the watchdog renews the lock.
    return lock.tryLock(limitMillis, TimeUnit.MILLISECONDS) ? new Held(lock, 0) : null;
  }

  private static Worker.Held lock(RFencedLock lock, long limitMillis) {
    Long token = lock.tryLockAndGetToken(limitMillis, TimeUnit.MILLISECONDS);
    return token != null ? new Held(lock, token) : null;
  }

  private record Held(RLock lock, long token) implements Worker.Held {
    /** Only a call to the server would tell. */
    @Override
    public boolean believes() {
      return true;
    }

    @Override
    public void unlock() {
      lock.unlock();
    }
  }
}
