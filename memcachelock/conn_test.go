package memcachelock

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// TestAnswerToAStoppedProcessIsRead: a process that was stopped after it sent a request finds the
// answer, and does not take the time in which it was stopped for silence of the server.
func TestAnswerToAStoppedProcessIsRead(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.Write([]byte("EN\r\n")); err != nil {
		t.Fatal(err)
	}
	c := &conn{net: n, in: bufio.NewReader(n), out: bufio.NewWriter(n), maxSilence: maxSilence}
	c.beginCall(t.Context(), time.Now().Add(-2*maxSilence), DefaultTimeout)
	if line, err := c.readLine(); string(line) != "EN" || err != nil {
		t.Errorf("the answer is %q, %v", line, err)
	}
}
