package dlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * The orders. A line is the thread, the order, the kind of lock (lock, fair or fenced; read or
 * write for those of a read-write lock), its name, and milliseconds. With a lease of 0 the watchdog
 * renews the lock.
 *
 * <pre>
 *   A lock KIND NAME LEASE       waits; answers: held TOKEN WHEN
 *   A try KIND NAME WAIT LEASE   answers: held TOKEN WHEN, or: refused
 *   A unlock KIND NAME           answers: unlocked BEGAN
 *   A force KIND NAME            unlocks for any holder; answers: forced, or: free
 *   A state KIND NAME            answers: held or free; mine or other; the time to live
 * </pre>
 *
 * <p>TOKEN is 0 if the kind has none. WHEN and BEGAN are microseconds since 1970. The answer to an
 * order that fails is: error MESSAGE.
 */
final class Orders {
  private static final long FOR_EVER = -1;
  private static final long WATCHDOG = -1;

  private final RedissonClient redisson;

  Orders(RedissonClient redisson) {
    this.redisson = redisson;
  }

  String execute(String[] words) {
    try {
      RLock lock = lock(words[2], words[3]);
      return switch (words[1]) {
        case "lock" -> held(acquire(lock, millis(words, 4)));
        case "try" -> {
          Long token = tryAcquire(lock, millis(words, 4), millis(words, 5));
          yield token == null ? "refused" : held(token);
        }
        case "unlock" -> {
          long began = now();
          lock.unlock();
          yield "unlocked " + began;
        }
        case "force" -> lock.forceUnlock() ? "forced" : "free";
        case "state" ->
            (lock.isLocked() ? "held " : "free ")
                + (lock.isHeldByCurrentThread() ? "mine " : "other ")
                + lock.remainTimeToLive();
        default -> "error unknown order " + words[1];
      };
    } catch (InterruptedException | RuntimeException e) {
      return "error " + e.toString().replace('\n', ' ');
    }
  }

  private RLock lock(String kind, String name) {
    return switch (kind) {
      case "lock" -> redisson.getLock(name);
      case "fair" -> redisson.getFairLock(name);
      case "fenced" -> redisson.getFencedLock(name);
      case "read" -> redisson.getReadWriteLock(name).readLock();
      case "write" -> redisson.getReadWriteLock(name).writeLock();
      default -> throw new IllegalArgumentException("unknown kind " + kind);
    };
  }

  private static long acquire(RLock lock, long lease) {
    if (lock instanceof RFencedLock fenced) {
      // lockAndGetToken(lease, unit) ignores the lease.
      return lease == 0
          ? fenced.lockAndGetToken()
          : fenced.tryLockAndGetToken(FOR_EVER, lease, MILLISECONDS);
    }
    if (lease == 0) {
      lock.lock();
    } else {
      lock.lock(lease, MILLISECONDS);
    }
    return 0;
  }

  /** Returns the token, 0 if the kind has none, or null if the lock is held. */
  private static Long tryAcquire(RLock lock, long wait, long lease) throws InterruptedException {
    if (lock instanceof RFencedLock fenced) {
      // tryLockAndGetToken() without arguments waits for ever.
      return fenced.tryLockAndGetToken(wait, orWatchdog(lease), MILLISECONDS);
    }
    boolean got =
        wait == 0 && lease == 0
            ? lock.tryLock()
            : lock.tryLock(wait, orWatchdog(lease), MILLISECONDS);
    return got ? 0L : null;
  }

  private static long orWatchdog(long lease) {
    return lease == 0 ? WATCHDOG : lease;
  }

  private static long millis(String[] words, int index) {
    return Long.parseLong(words[index]);
  }

  private static String held(long token) {
    return "held " + token + " " + now();
  }

  private static long now() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }
}
