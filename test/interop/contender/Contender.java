package dlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One process of the benchmark's cases handover, readers and permits, as test/bench/participant.go does it: it reports
 * that it is ready, reads the times of its start and end, and reports its acquisitions. On Linux nanoTime is
 * CLOCK_MONOTONIC, which all processes share.
 */
final class Contender {
    private static final long WARM_UP = TimeUnit.SECONDS.toNanos(2);

    /** The locks of a library. */
    interface Library {
        Lock exclusive(String name) throws Exception;

        ReadWrite readWrite(String name) throws Exception;

        Lock semaphore(String name, int limit) throws Exception;
    }

    /** A lock that one thread acquires and releases again and again. */
    interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    /** The two locks of a read-write lock. */
    record ReadWrite(Lock write, Lock read) {}

    private final Library primitives;
    private final String name;
    private final int threads;
    private final long hold;
    private final long pause;
    private final int sharedPercent;
    private final int limit;

    /**
     * Arguments, after the address: name of the lock, threads, nanoseconds to hold it, nanoseconds between two
     * acquisitions, percentage of shared acquisitions, and the limit of the semaphore or 0.
     */
    Contender(Library primitives, String[] args) {
        this.primitives = primitives;
        name = args[1];
        threads = Integer.parseInt(args[2]);
        hold = Long.parseLong(args[3]);
        pause = Long.parseLong(args[4]);
        sharedPercent = Integer.parseInt(args[5]);
        limit = Integer.parseInt(args[6]);
    }

    /** Warms up with a lock of its own, and contends. */
    void run() throws Exception {
        long now = System.nanoTime();
        contend(name + "-" + ProcessHandle.current().pid(), now, now + WARM_UP);
        System.out.println("true");
        String span = new BufferedReader(new InputStreamReader(System.in)).readLine();
        List<String> acquisitions = contend(name, number(span, "Start"), number(span, "End"));
        System.out.println("{\"Acquisitions\":[" + String.join(",", acquisitions) + "],\"Counts\":false}");
    }

    private static long number(String json, String field) {
        Matcher found = Pattern.compile('"' + field + "\":(\\d+)").matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException(json);
        }
        return Long.parseLong(found.group(1));
    }

    private List<String> contend(String lock, long start, long end) throws Exception {
        ExecutorService all = Executors.newFixedThreadPool(threads);
        List<Future<List<String>>> parts = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            ReadWrite locks = locks(lock);
            parts.add(all.submit(() -> acquireRepeatedly(locks, thread, start, end)));
        }
        List<String> acquisitions = new ArrayList<>();
        for (Future<List<String>> part : parts) {
            acquisitions.addAll(part.get());
        }
        all.shutdown();
        return acquisitions;
    }

    private ReadWrite locks(String lock) throws Exception {
        if (sharedPercent > 0) {
            return primitives.readWrite(lock);
        }
        return new ReadWrite(limit > 0 ? primitives.semaphore(lock, limit) : primitives.exclusive(lock), null);
    }

    private List<String> acquireRepeatedly(ReadWrite locks, int thread, long start, long end) throws Exception {
        List<String> acquisitions = new ArrayList<>();
        sleepUntil(start);
        while (System.nanoTime() < end) {
            boolean exclusive = ThreadLocalRandom.current().nextInt(100) >= sharedPercent;
            Lock lock = exclusive ? locks.write() : locks.read();
            long asked = System.nanoTime();
            lock.acquire();
            long granted = System.nanoTime();
            sleepUntil(granted + hold);
            long released = System.nanoTime();
            lock.release();
            long returned = System.nanoTime();
            acquisitions.add("{\"Goroutine\":" + thread + ",\"Exclusive\":" + exclusive + ",\"Asked\":" + asked
                    + ",\"Granted\":" + granted + ",\"Released\":" + released + ",\"Returned\":" + returned + "}");
            sleepUntil(returned + pause);
        }
        return acquisitions;
    }

    private static void sleepUntil(long time) {
        for (long left = time - System.nanoTime(); left > 0; left = time - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
