package dlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/**
 * Executes orders about the locks of one path, a line each, as test/harness/child sends them: an InterProcessMutex,
 * an InterProcessReadWriteLock and an InterProcessSemaphoreV2 with two leases.
 */
public final class Curator {
    private static final int SESSION_MILLIS = 60_000;
    private static final int CONNECT_MILLIS = 15_000;
    private static final int LEASES = 2;

    private final CuratorFramework client;
    private final InterProcessMutex mutex;
    private final InterProcessMutex reader;
    private final InterProcessMutex writer;
    private final InterProcessSemaphoreV2 semaphore;
    private final Deque<Lease> leases = new ArrayDeque<>();

    private Curator(CuratorFramework client, String path) {
        this.client = client;
        mutex = new InterProcessMutex(client, path);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        reader = both.readLock();
        writer = both.writeLock();
        semaphore = new InterProcessSemaphoreV2(client, path, LEASES);
    }

    /** Arguments: address, path of the lock and, if it is not the default, the session timeout in milliseconds. */
    public static void main(String[] args) throws Exception {
        int session = args.length > 2 ? Integer.parseInt(args[2]) : SESSION_MILLIS;
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], session, CONNECT_MILLIS, new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            Curator curator = new Curator(client, args[1]);
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("main ready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                String[] words = order.split(" ", 2); // the thread and its order
                System.out.println(words[0] + " " + curator.execute(words[1]));
            }
        }
    }

    private String execute(String order) throws Exception {
        String[] words = order.split(" ", 2); // what to do, and with which lock
        if (words.length == 2) {
            return words[1].equals("permit") ? execute(words[0], semaphore) : execute(words[0], lock(words[1]));
        }
        switch (order) {
            case "data": // of the holder, as Curator finds it
                String first = mutex.getParticipantNodes().iterator().next();
                return new String(client.getData().forPath(first));
            case "count":
                return String.valueOf(mutex.getParticipantNodes().size());
            default:
                return execute(order, mutex);
        }
    }

    private InterProcessMutex lock(String kind) {
        switch (kind) {
            case "read":
                return reader;
            case "write":
                return writer;
            default:
                return mutex;
        }
    }

    private static String execute(String order, InterProcessMutex lock) throws Exception {
        switch (order) {
            case "try":
                return lock.acquire(0, TimeUnit.MILLISECONDS) ? "locked" : "refused";
            case "lock":
                lock.acquire();
                return "locked";
            case "unlock":
                lock.release();
                return "unlocked";
            default:
                return "unknown order " + order;
        }
    }

    private String execute(String order, InterProcessSemaphoreV2 permits) throws Exception {
        switch (order) {
            case "try":
                Lease lease = permits.acquire(1, TimeUnit.SECONDS); // it takes a mutex first
                if (lease != null) {
                    leases.push(lease);
                }
                return lease != null ? "locked" : "refused";
            case "lock":
                leases.push(permits.acquire());
                return "locked";
            case "unlock":
                permits.returnLease(leases.pop());
                return "unlocked";
            default:
                return "unknown order " + order;
        }
    }
}
