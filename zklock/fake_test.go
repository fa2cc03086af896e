package zklock

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// fakeServer is a server that has a root and one other node, whatever its path, and tells
// of no changes to it. Real ones do what is tested with it only now and then.
type fakeServer struct {
	net.Listener
	work sync.WaitGroup

	mu    sync.Mutex
	czxid int64 // of the node; zero if it is not there
	looks int   // at the node
	conns []net.Conn
}

func runFake(t *testing.T) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{Listener: listener}
	f.work.Go(f.accept)
	t.Cleanup(func() {
		listener.Close()
		f.hangUp()
		f.work.Wait()
	})
	return f
}

func (f *fakeServer) accept() {
	for {
		conn, err := f.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		f.work.Go(func() { f.serve(conn) })
	}
}

// hangUp ends all connections there are.
func (f *fakeServer) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// set makes the node another one, or none.
func (f *fakeServer) set(czxid int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.czxid = czxid
}

func (f *fakeServer) lookedAt() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// serve greets with a session, and answers until the connection ends.
func (f *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	const session, passwordBytes = 1, 16
	if _, err := readPacket(conn); err != nil {
		return
	}
	greeting := binary.BigEndian.AppendUint32(nil, 0)
	greeting = binary.BigEndian.AppendUint32(greeting, uint32((10 * time.Second).Milliseconds()))
	greeting = binary.BigEndian.AppendUint64(greeting, session)
	greeting = binary.BigEndian.AppendUint32(greeting, passwordBytes)
	err := writePacket(conn, append(greeting, make([]byte, passwordBytes)...))
	for err == nil {
		var request []byte
		if request, err = readPacket(conn); err == nil {
			err = writePacket(conn, f.answer(request))
		}
	}
}

// answer says what the client wants to know. A request begins with its number and what it
// asks for, an answer with the number, a zxid and an error.
func (f *fakeServer) answer(request []byte) []byte {
	const exists, getData, doSync = 3, 4, 9
	const noNode = uint32(1<<32 - 101)
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := binary.BigEndian.AppendUint64(request[:4:4], 1)
	ok := binary.BigEndian.AppendUint32(answer, 0)
	switch binary.BigEndian.Uint32(request[4:]) {
	case getData:
		f.looks++
		if f.czxid == 0 {
			return binary.BigEndian.AppendUint32(answer, noNode)
		}
		return append(binary.BigEndian.AppendUint32(ok, 0), statOf(f.czxid)...)
	case exists:
		return append(ok, statOf(1)...)
	case doSync:
		return binary.BigEndian.AppendUint32(ok, 0)
	default:
		return ok
	}
}

// statOf is a Stat in which only the czxid matters.
func statOf(czxid int64) []byte {
	stat := make([]byte, binary.Size(zk.Stat{}))
	binary.BigEndian.PutUint64(stat, uint64(czxid))
	return stat
}

// Packets begin with their length.
func readPacket(conn net.Conn) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	packet := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(conn, packet)
	return packet, err
}

func writePacket(conn net.Conn, packet []byte) error {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...))
	return err
}

// openFake is a store on the fake server, with a session.
func openFake(t *testing.T, f *fakeServer) *Store {
	t.Helper()
	s, err := New([]string{f.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it has nothing to fail with
	if err := s.connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
