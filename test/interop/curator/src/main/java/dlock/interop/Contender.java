package dlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * One process of the benchmark's case handover, as test/bench/participant.go does it: it reports that it is
 * ready, reads the times of its start and end, and reports its acquisitions. On Linux nanoTime is CLOCK_MONOTONIC, which
 * all processes share.
 */
public final class Contender {
    private static final long WARM_UP = TimeUnit.SECONDS.toNanos(2);

    private final CuratorFramework client;
    private final long hold;
    private final long pause;

    private Contender(CuratorFramework client, long hold, long pause) {
        this.client = client;
        this.hold = hold;
        this.pause = pause;
    }

    /** Arguments: address, path of the lock, threads, nanoseconds to hold it, nanoseconds between two acquisitions. */
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            Contender contender = new Contender(client, Long.parseLong(args[3]), Long.parseLong(args[4]));
            int threads = Integer.parseInt(args[2]);
            String own = args[1] + "-" + ProcessHandle.current().pid();
            long now = System.nanoTime();
            contender.contend(own, threads, now, now + WARM_UP);
            System.out.println("true");
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            String span = orders.readLine();
            List<String> acquisitions = contender.contend(args[1], threads, number(span, "Start"), number(span, "End"));
            System.out.println("{\"Acquisitions\":[" + String.join(",", acquisitions) + "],\"Counts\":false}");
        }
    }

    private static long number(String json, String field) {
        Matcher found = Pattern.compile('"' + field + "\":(\\d+)").matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException(json);
        }
        return Long.parseLong(found.group(1));
    }

    private List<String> contend(String path, int threads, long start, long end) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        ExecutorService all = Executors.newFixedThreadPool(threads);
        List<Future<List<String>>> parts = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            parts.add(all.submit(() -> acquireRepeatedly(mutex, thread, start, end)));
        }
        List<String> acquisitions = new ArrayList<>();
        for (Future<List<String>> part : parts) {
            acquisitions.addAll(part.get());
        }
        all.shutdown();
        return acquisitions;
    }

    private List<String> acquireRepeatedly(InterProcessMutex mutex, int thread, long start, long end) throws Exception {
        List<Long> times = new ArrayList<>(); // four of each acquisition
        sleepUntil(start);
        while (System.nanoTime() < end) {
            long asked = System.nanoTime();
            mutex.acquire();
            long granted = System.nanoTime();
            sleepUntil(granted + hold);
            long released = System.nanoTime();
            mutex.release();
            long returned = System.nanoTime();
            times.addAll(List.of(asked, granted, released, returned));
            sleepUntil(returned + pause);
        }
        List<String> acquisitions = new ArrayList<>();
        for (int i = 0; i < times.size(); i += 4) {
            acquisitions.add(String.format("{\"Goroutine\":%d,\"Asked\":%d,\"Granted\":%d,\"Released\":%d,\"Returned\":%d}",
                    thread, times.get(i), times.get(i + 1), times.get(i + 2), times.get(i + 3)));
        }
        return acquisitions;
    }

    private static void sleepUntil(long time) {
        for (long left = time - System.nanoTime(); left > 0; left = time - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
