package dlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Executes orders about one InterProcessMutex, a line each, as test/harness/child sends them. */
public final class Curator {
    private Curator() {}

    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("main ready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                String[] words = order.split(" ", 2); // the thread and its order
                System.out.println(words[0] + " " + execute(client, mutex, words[1]));
            }
        }
    }

    private static String execute(CuratorFramework client, InterProcessMutex mutex, String order) throws Exception {
        switch (order) {
            case "try":
                return mutex.acquire(0, TimeUnit.MILLISECONDS) ? "locked" : "refused";
            case "lock":
                mutex.acquire();
                return "locked";
            case "unlock":
                mutex.release();
                return "unlocked";
            case "data": // of the holder, as Curator finds it
                String first = mutex.getParticipantNodes().iterator().next();
                return new String(client.getData().forPath(first));
            case "count":
                return String.valueOf(mutex.getParticipantNodes().size());
            default:
                return "unknown order " + order;
        }
    }
}
