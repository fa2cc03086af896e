import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A process of an experiment: executes the orders of lab/stage from standard input, a JSON
 * object each, until the input ends.
 */
final class Worker {
  /** One process's access to the lock. */
  interface Locker {
    /** Waits for the lock. Returns null if the process does not get it within the limit. */
    Held lock(long limitMillis) throws Exception;
  }

  /** A lock that the process has, or believes to have. */
  interface Held {
    /** Whether the process may go on, as far as the library lets it know without asking the server. */
    boolean believes();

    long token();

    void unlock() throws Exception;
  }

  private static final long CHECK_EVERY_MILLIS = 5;
  private static final String CONFIG = System.getenv("DLOCK_LAB_WORKER");

  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final Locker locker;
  // The locks of both libraries belong to a thread.
  private final ExecutorService owner = Executors.newSingleThreadExecutor();

  private volatile Held held;
  private volatile int holds;
  private volatile boolean ended;

  private Worker(Locker locker) {
    this.locker = locker;
  }

  /** What the experiment gives to its processes: url, name or ttl, which is in nanoseconds. */
  static String config(String field) {
    return field(CONFIG, field).replace("\\u0026", "&");
  }

  static long ttlMillis() {
    return Long.parseLong(config("ttl")) / 1_000_000;
  }

  static void run(Locker locker) throws IOException {
    new Worker(locker).run();
    Runtime.getRuntime().halt(0); // without the shutdown of a library
  }

  private void run() throws IOException {
    report(-1, now(), ""); // ready
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String order = in.readLine(); order != null; order = in.readLine()) {
      String line = order;
      long id = Long.parseLong(field(line, "id"));
      switch (field(line, "do")) {
        case "lock" -> owner.execute(() -> lock(id, Long.parseLong(field(line, "limit")) / 1_000_000));
        case "unlock" -> {
          ended = true;
          owner.execute(() -> unlock(id));
        }
        case "finish" -> {
          ended = true;
          report(id, now(), "");
        }
        default -> check(id, line.contains("\"checked\":true")); // check, write
      }
    }
  }

  private void lock(long id, long limitMillis) {
    try {
      Held got = locker.lock(limitMillis);
      long at = now();
      if (got == null) {
        report(id, at, error("gave up waiting"));
        return;
      }
      held = got;
      ended = false;
      int number = ++holds;
      report(id, at, believes(got, number));
      Thread checks = new Thread(() -> reportBelief(got, number));
      checks.setDaemon(true);
      checks.start();
    } catch (Exception e) {
      report(id, now(), error(e.toString()));
    }
  }

  private void unlock(long id) {
    try {
      held.unlock();
      report(id, now(), "");
    } catch (Exception e) {
      report(id, now(), error(e.toString()));
    }
  }

  /** A process that was paused after its check writes without another one. */
  private void check(long id, boolean checked) {
    Held current = held;
    long at = now();
    report(id, at, checked || current.believes() ? believes(current, holds) : "");
  }

  private void reportBelief(Held current, int number) {
    while (true) {
      long at = now(); // before the check, so that the belief at this time is certain
      boolean believes = current.believes();
      if (ended || number != holds) {
        return;
      }
      if (believes) {
        report(0, at, believes(current, number));
      }
      try {
        Thread.sleep(CHECK_EVERY_MILLIS);
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  private static String believes(Held held, int number) {
    return ",\"believes\":true,\"hold\":" + number + ",\"token\":" + held.token();
  }

  private static String error(String text) {
    return ",\"err\":\"" + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
  }

  private synchronized void report(long id, long at, String more) {
    out.println("{\"id\":" + id + ",\"at\":" + at + more + "}");
  }

  /** The clock of stage.Now. */
  private static long now() {
    return System.nanoTime();
  }

  /** The value of a field of a JSON object whose texts need no escapes. */
  private static String field(String object, String name) {
    Matcher m = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(object);
    if (!m.find()) {
      throw new IllegalArgumentException("no " + name + " in " + object);
    }
    return m.group(1);
  }
}
