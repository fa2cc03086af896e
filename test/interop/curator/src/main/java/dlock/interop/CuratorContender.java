package dlock.interop;

import dlock.interop.Contender.Lock;
import dlock.interop.Contender.ReadWrite;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/** A process of the benchmark with Curator's locks. */
public final class CuratorContender implements Contender.Library {
    private final CuratorFramework client;

    private CuratorContender(CuratorFramework client) {
        this.client = client;
    }

    /** Arguments: the address of ZooKeeper, and those of Contender. */
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            new Contender(new CuratorContender(client), args).run();
        }
    }

    @Override
    public Lock exclusive(String name) {
        return lockOf(new InterProcessMutex(client, "/" + name));
    }

    @Override
    public ReadWrite readWrite(String name) {
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, "/" + name);
        return new ReadWrite(lockOf(both.writeLock()), lockOf(both.readLock()));
    }

    private static Lock lockOf(InterProcessMutex mutex) {
        return new Lock() {
            @Override
            public void acquire() throws Exception {
                mutex.acquire();
            }

            @Override
            public void release() throws Exception {
                mutex.release();
            }
        };
    }

    @Override
    public Lock semaphore(String name, int limit) {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/" + name, limit);
        return new Lock() {
            private Lease lease;

            @Override
            public void acquire() throws Exception {
                lease = semaphore.acquire();
            }

            @Override
            public void release() {
                semaphore.returnLease(lease);
            }
        };
    }
}
