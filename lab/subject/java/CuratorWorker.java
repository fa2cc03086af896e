import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

/**
 * A process that locks with Curator's InterProcessMutex. As its documents recommend, it does not
 * trust its lock while the connection is suspended, nor after the session was lost.
 */
final class CuratorWorker {
  private static final int CONNECT_MILLIS = 15_000;

  private static volatile boolean connected;
  private static final AtomicInteger LOST = new AtomicInteger();

  private CuratorWorker() {}

  public static void main(String[] args) throws Exception {
    String address = Worker.config("url").replaceFirst("^zookeeper://", "").replaceFirst("[?].*$", "");
    int session = (int) Math.max(Worker.ttlMillis(), 2000);
    CuratorFramework client = CuratorFrameworkFactory.newClient(address, session, CONNECT_MILLIS, new RetryOneTime(100));
    client.getConnectionStateListenable().addListener((from, state) -> changed(state));
    client.start();
    client.blockUntilConnected();
    connected = true;
    InterProcessMutex mutex = new InterProcessMutex(client, "/" + Worker.config("name"));
    Worker.run(limit -> mutex.acquire(limit, TimeUnit.MILLISECONDS) ? new Held(mutex, LOST.get()) : null);
  }

  private static void changed(ConnectionState state) {
    connected = state.isConnected();
    if (state == ConnectionState.LOST) {
      LOST.incrementAndGet();
    }
  }

  private record Held(InterProcessMutex mutex, int lost) implements Worker.Held {
    @Override
    public boolean believes() {
      return connected && lost == LOST.get();
    }

    @Override
    public long token() {
      return 0;
    }

    @Override
    public void unlock() throws Exception {
      mutex.release();
    }
  }
}
