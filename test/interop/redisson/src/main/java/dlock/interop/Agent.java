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
 * Executes orders about locks of Redisson from standard input.
 *
 * <p>A line is the name of a thread, an order and its arguments. The first order for a thread
 * creates it: a lock of Redisson belongs to a thread. A thread executes its orders one after the
 * other, and answers each with one line that begins with its name. The end of the input, or the
 * order quit, ends the process.
 */
public final class Agent {
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final Map<String, ExecutorService> threads = new HashMap<>();
  private final Orders orders;

  private Agent(RedissonClient redisson) {
    orders = new Orders(redisson);
  }

  /** The arguments are the URL of the servers and the watchdog's timeout in milliseconds. */
  public static void main(String[] args) throws IOException {
    RedissonClient redisson = Redisson.create(Servers.config(args[0], Long.parseLong(args[1])));
    new Agent(redisson).run();
    // A shutdown would take seconds, and nothing has to be cleaned up.
    Runtime.getRuntime().halt(0);
  }

  private void run() throws IOException {
    answer("main", "ready");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
      String[] words = line.split(" ");
      threads
          .computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(words[0], orders.execute(words)));
    }
  }

  private synchronized void answer(String thread, String text) {
    out.println(thread + " " + text);
  }
}
