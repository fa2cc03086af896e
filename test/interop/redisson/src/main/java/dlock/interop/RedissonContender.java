package dlock.interop;

import dlock.interop.Contender.Lock;
import dlock.interop.Contender.ReadWrite;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A process of the benchmark with Redisson's locks. Its settings are the defaults. */
public final class RedissonContender implements Contender.Library {
  /** The expiry of a permit; that of a lock is the same by default. */
  private static final long LEASE_SECONDS = 30;

  private final RedissonClient redisson;

  private RedissonContender(RedissonClient redisson) {
    this.redisson = redisson;
  }

  /** Arguments: the URL of the server, and those of Contender. */
  public static void main(String[] args) throws Exception {
    Config config = new Config();
    config.useSingleServer().setAddress(args[0]);
    new Contender(new RedissonContender(Redisson.create(config)), args).run();
    System.out.flush();
    // A shutdown would take seconds, and nothing has to be cleaned up.
    Runtime.getRuntime().halt(0);
  }

  @Override
  public Lock exclusive(String name) {
    return lockOf(redisson.getLock(name));
  }

  @Override
  public ReadWrite readWrite(String name) {
    RReadWriteLock both = redisson.getReadWriteLock(name);
    return new ReadWrite(lockOf(both.writeLock()), lockOf(both.readLock()));
  }

  private static Lock lockOf(RLock lock) {
    return new Lock() {
      @Override
      public void acquire() {
        lock.lock();
      }

      @Override
      public void release() {
        lock.unlock();
      }
    };
  }

  @Override
  public Lock semaphore(String name, int limit) {
    RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
    semaphore.trySetPermits(limit);
    return new Lock() {
      private String permit;

      @Override
      public void acquire() throws InterruptedException {
        permit = semaphore.acquire(LEASE_SECONDS, TimeUnit.SECONDS);
      }

      @Override
      public void release() {
        semaphore.release(permit);
      }
    };
  }
}
