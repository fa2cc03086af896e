package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// TestSequenceNumbersRestart: the numbers of a container that has used them up restart at zero when
// it is empty. Until then attempts fail, because the server gives every node the last number.
func TestSequenceNumbersRestart(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	createWithNextNumber(t, server, 1<<31-5, "/n")

	conn := admin(t, server.Addr())
	holder, other := open(t, server.URL()), open(t, server.URL())
	grant := want.Acquire(t, holder, request("n"))
	if nodes := contenders(t, conn, "n"); len(nodes) != 1 || !strings.HasSuffix(nodes[0], "lock-2147483643") {
		t.Fatalf("the nodes are %q; want one with a number close to the last", nodes)
	}
	var err error
	for range 6 { // the numbers left suffice for one more attempt
		if err = tryInQueue(t, other, queuedRequest(exclusive, "n")); err == nil {
			t.Fatal("two owners hold the lock")
		}
	}
	if !errors.Is(err, zklock.ErrNumbersUsedUp) {
		t.Errorf("beyond the last number: %v; want ErrNumbersUsedUp", err)
	}
	want.Renew(t, holder, "of what is held", grant)
	want.Release(t, holder, grant)
	next := want.Acquire(t, other, request("n"))
	if nodes := contenders(t, conn, "n"); len(nodes) != 1 || !strings.HasSuffix(nodes[0], "lock-0000000000") {
		t.Errorf("the nodes are %q; want one whose number is the first", nodes)
	}
	want.Larger(t, next.Token, grant.Token)
	want.Release(t, other, next)
}

// TestNumbersOfSemaphoreRestart: the numbers of a semaphore's container restart when it is empty,
// and so do those of its lease nodes. A lease node whose number is not unique is no permit.
func TestNumbersOfSemaphoreRestart(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	createWithNextNumber(t, server, 1<<31-4, "/n", "/m/leases")

	conn := admin(t, server.Addr())
	holder, other := open(t, server.URL()), open(t, server.URL())
	last := uint64(0)
	for range 6 {
		grant := want.Acquire(t, holder, requestIn(two, "n"))
		if grant.Token <= last {
			t.Errorf("token %d after %d", grant.Token, last)
		}
		last = grant.Token
		want.Release(t, holder, grant)
	}
	grants := []driver.Grant{want.Acquire(t, holder, requestIn(two, "m")), want.Acquire(t, holder, requestIn(two, "m"))}
	var err error
	for range 4 {
		if err = tryInQueue(t, other, queuedRequest(two, "m")); err == nil {
			t.Fatal("a third holder of two permits")
		}
	}
	if !errors.Is(err, zklock.ErrNumbersUsedUp) {
		t.Errorf("beyond the last number: %v; want ErrNumbersUsedUp", err)
	}
	for _, grant := range grants {
		want.Release(t, holder, grant)
	}
	grant := want.Acquire(t, other, requestIn(two, "m"))
	if leases := childrenOf(t, conn, "m/leases"); len(leases) != 1 || !strings.HasSuffix(leases[0], "lease-0000000000") {
		t.Errorf("the leases are %q; want one whose number is the first", leases)
	}
	want.Release(t, other, grant)
}

// tryInQueue makes an attempt that creates its nodes without looking whether the lock is free, and
// gives up its place.
func tryInQueue(t testing.TB, store driver.Store, req driver.Request) error {
	t.Helper()
	_, err := store.Acquire(t.Context(), req)
	if err := store.Release(t.Context(), want.Undo(req)); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		t.Error(err)
	}
	return err
}

// createWithNextNumber creates containers and sets their next sequence number: it writes
// transactions to the log of the server, which the server reads when it starts. Connect to the
// server after that: the client waits minutes for one that does not answer because it starts.
func createWithNextNumber(t testing.TB, server *servers.Server, number int32, parents ...string) {
	t.Helper()
	conn := admin(t, server.Addr())
	for _, parent := range parents {
		for _, path := range []string{path.Dir(parent), parent} {
			_, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Fatal(err)
			}
		}
	}
	_, stat, err := conn.Exists(parents[0])
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	want.OK(t, server.Kill())
	const ahead = 1000 // later than everything that happened since
	zxid := stat.Czxid + ahead
	var records [][]byte
	for _, parent := range parents {
		next := zxid + int64(len(records))
		records = append(records,
			transaction(next, 1, createRecord(parent+"/counted", number)),
			transaction(next+1, 2, text(nil, parent+"/counted"))) // and deleted
	}
	log := transactionLog(records...)
	file := filepath.Join(server.Dir(), "data", "version-2", fmt.Sprintf("log.%x", zxid))
	want.OK(t, os.WriteFile(file, log, 0o644))
	want.OK(t, server.Restart())
}

// transactionLog returns a log file of ZooKeeper: "ZKLG", version 2, a database, then records
// with a checksum before and a 'B' after each.
func transactionLog(records ...[]byte) []byte {
	log := append([]byte("ZKLG"), 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, record := range records {
		log = binary.BigEndian.AppendUint64(log, uint64(adler32.Checksum(record)))
		log = binary.BigEndian.AppendUint32(log, uint32(len(record)))
		log = append(append(log, record...), 'B')
	}
	return log
}

// transaction returns a header with an invented session, and a record.
func transaction(zxid int64, kind uint32, record []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, 0) // session
	b = binary.BigEndian.AppendUint32(b, 0)    // its request
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	b = binary.BigEndian.AppendUint64(b, 0) // time
	b = binary.BigEndian.AppendUint32(b, kind)
	return append(b, record...)
}

// createRecord creates a persistent node, and sets how many nodes the parent has had.
func createRecord(path string, count int32) []byte {
	b := text(nil, path)
	b = binary.BigEndian.AppendUint32(b, 0) // no data
	b = binary.BigEndian.AppendUint32(b, 1) // one permission:
	b = binary.BigEndian.AppendUint32(b, zk.PermAll)
	b = text(text(b, "world"), "anyone")
	b = append(b, 0) // not ephemeral
	return binary.BigEndian.AppendUint32(b, uint32(count))
}

func text(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
