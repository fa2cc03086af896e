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

// TestSequenceNumbersBeginAgain: a container that has used up its numbers begins again when it is
// empty. Until then acquisitions fail, because the server gives every node the last number.
func TestSequenceNumbersBeginAgain(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	if _, err := conn.Create("/n", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	countUp(t, server, conn, "/n", 1<<31-4)

	holder, other := open(t, server.URL()), open(t, server.URL())
	grant := acquire(t, holder, request("n"))
	if children, _, err := conn.Children("/n"); err != nil || len(children) != 1 || !strings.HasSuffix(children[0], "lock-2147483644") {
		t.Fatalf("the nodes are %q, %v; want one with a number close to the last", children, err)
	}
	var err error
	for range 6 { // two numbers are left, and the last
		if _, err = other.Acquire(t.Context(), request("n")); err == nil {
			t.Fatal("two owners hold the lock")
		}
	}
	if !errors.Is(err, zklock.ErrNumbersUsedUp) {
		t.Errorf("beyond the last number: %v; want ErrNumbersUsedUp", err)
	}
	if errs := holder.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Errorf("Renew by the holder: %v", errs)
	}
	release(t, holder, grant)
	next := acquire(t, other, request("n"))
	if children, _, err := conn.Children("/n"); err != nil || len(children) != 1 || !strings.HasSuffix(children[0], "lock-0000000000") {
		t.Errorf("the nodes are %q, %v; want one whose number is the first", children, err)
	}
	if next.Token <= grant.Token {
		t.Errorf("token %d after %d", next.Token, grant.Token)
	}
	release(t, other, next)
}

// countUp sets the next sequence number of a container: it writes a transaction to the log
// of the server, which the server reads when it starts.
func countUp(t testing.TB, server *servers.Server, conn *zk.Conn, parent string, number int32) {
	t.Helper()
	_, stat, err := conn.Exists(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	const ahead = 1000 // later than everything that happened since
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
