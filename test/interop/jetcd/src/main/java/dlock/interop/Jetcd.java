package dlock.interop;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Executes orders about one lock of etcd, a line each, as test/harness/child sends them. */
public final class Jetcd {
    private final Client client;
    private final ByteSequence name;
    private final long lease;
    private ByteSequence key; // while it holds the lock

    private Jetcd(Client client, String name, long seconds) throws Exception {
        this.client = client;
        this.name = ByteSequence.from(name, UTF_8);
        this.lease = client.getLeaseClient().grant(seconds).get().getID();
        client.getLeaseClient().keepAlive(lease, new Quiet());
    }

    /** Arguments: address, name of the lock, TTL of its lease in seconds. */
    public static void main(String[] args) throws Exception {
        try (Client client = Client.builder().endpoints("http://" + args[0]).build()) {
            Jetcd lock = new Jetcd(client, args[1], Long.parseLong(args[2]));
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("main ready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                String[] words = order.split(" ", 2); // the thread and its order
                System.out.println(words[0] + " " + lock.execute(words[1]));
            }
        }
    }

    private String execute(String order) throws Exception {
        switch (order) {
            case "lock":
                key = client.getLockClient().lock(name, lease).get().getKey();
                return "locked";
            case "unlock":
                client.getLockClient().unlock(key).get();
                return "unlocked";
            case "key":
                return key.toString(UTF_8);
            default:
                return "unknown order " + order;
        }
    }

    /** Ignores the responses. */
    private static final class Quiet implements StreamObserver<LeaseKeepAliveResponse> {
        @Override
        public void onNext(LeaseKeepAliveResponse renewed) {}

        @Override
        public void onError(Throwable reason) {}

        @Override
        public void onCompleted() {}
    }
}
