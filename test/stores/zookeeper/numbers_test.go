package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// TestNumbersAreUsedUp: a container whose numbers come to their end begins again when
// it is empty, and until then says so: the server gives the last number to everybody.
func TestNumbersAreUsedUp(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	if _, err := conn.Create("/n", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	countUp(t, server, conn, "/n", 1<<31-4)

	holder, rival := open(t, server.URL()), open(t, server.URL())
	grant := acquire(t, holder, request("n"))
	if children, _, err := conn.Children("/n"); err != nil || len(children) != 1 || !strings.HasSuffix(children[0], "lock-2147483644") {
		t.Fatalf("the nodes are %q, %v; want one with a number close to the last", children, err)
	}
	var err error
	for range 6 { // there are two more numbers, and the last
		if _, err = rival.Acquire(t.Context(), request("n")); err == nil {
			t.Fatal("two have the lock")
		}
	}
	if !errors.Is(err, zklock.ErrNumbersUsedUp) {
		t.Errorf("beyond the last number: %v; want ErrNumbersUsedUp", err)
	}
	if errs := holder.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Errorf("Renew by the holder: %v", errs)
	}
	release(t, holder, grant)
	next := acquire(t, rival, request("n"))
	if children, _, err := conn.Children("/n"); err != nil || len(children) != 1 || !strings.HasSuffix(children[0], "lock-0000000000") {
		t.Errorf("the nodes are %q, %v; want one whose number is the first", children, err)
	}
	if next.Token <= grant.Token {
		t.Errorf("token %d after %d", next.Token, grant.Token)
	}
	release(t, rival, next)
}

// countUp makes the next number of a container that one, as so many creations would:
// it writes a transaction to the log of the server, which reads it when it starts.
func countUp(t testing.TB, server *servers.Server, conn *zk.Conn, parent string, number int32) {
	t.Helper()
	_, stat, err := conn.Exists(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	const ahead = 1000 // of everything that happened since
	zxid := stat.Czxid + ahead
	log := transactionLog(
		transaction(zxid, 1, createRecord(parent+"/counted", number)),
		transaction(zxid+1, 2, text(nil, parent+"/counted")), // and deleted
	)
	file := filepath.Join(server.Dir(), "data", "version-2", fmt.Sprintf("log.%x", zxid))
	if err := os.WriteFile(file, log, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
}

// transactionLog is a file of ZooKeeper's: "ZKLG", version 2, a database, then records
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

// transaction is a header, of a session that never was, and a record.
func transaction(zxid int64, kind uint32, record []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, 0) // session
	b = binary.BigEndian.AppendUint32(b, 0)    // its request
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	b = binary.BigEndian.AppendUint64(b, 0) // time
	b = binary.BigEndian.AppendUint32(b, kind)
	return append(b, record...)
}

// createRecord creates a persistent node, after which the parent has had that many.
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
