package dlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Obeys orders about one InterProcessMutex: a line each on standard input, and a line each in answer. */
public final class Curator {
    private Curator() {}

    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                System.out.println(obey(client, mutex, order));
            }
        }
    }

    private static String obey(CuratorFramework client, InterProcessMutex mutex, String order) throws Exception {
        switch (order) {
            case "try":
                return mutex.acquire(0, TimeUnit.MILLISECONDS) ? "locked" : "refused";
            case "lock":
                mutex.acquire();
                return "locked";
            case "unlock":
                mutex.release();
                return "unlocked";
            case "data": // of whoever has the lock, as Curator finds him
                String first = mutex.getParticipantNodes().iterator().next();
                return new String(client.getData().forPath(first));
            case "count":
                return String.valueOf(mutex.getParticipantNodes().size());
            default:
                return "unknown order " + order;
        }
    }
}
