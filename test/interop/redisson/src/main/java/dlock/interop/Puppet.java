package dlock.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Does with Redisson what it is told on standard input.
 *
 * <p>A line is the name of a thread, an order and its arguments. The thread, which is made when it
 * is first named, obeys its orders one after the other, since a lock of Redisson belongs to a
 * thread, and answers each by one line that begins with its name. The end of the input, or the
 * order quit, ends the process.
 */
public final class Puppet {
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final Map<String, ExecutorService> threads = new HashMap<>();
  private final Orders orders;

  private Puppet(RedissonClient redisson) {
    orders = new Orders(redisson);
  }

  /** The arguments are the URL of the servers and the watchdog's timeout in milliseconds. */
  public static void main(String[] args) throws IOException {
    RedissonClient redisson = Redisson.create(Servers.config(args[0], Long.parseLong(args[1])));
    new Puppet(redisson).obey();
    // Without a shutdown, which would take seconds: nothing that matters is left.
    Runtime.getRuntime().halt(0);
  }

  private void obey() throws IOException {
    answer("main", "ready");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
      String[] words = line.split(" ");
      threads
          .computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(words[0], orders.obey(words)));
    }
  }

  private synchronized void answer(String thread, String text) {
    out.println(thread + " " + text);
  }
}
