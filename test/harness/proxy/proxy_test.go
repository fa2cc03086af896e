package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/proxy"
)

const (
	limit = 20 * time.Second       // for events that must happen
	quiet = 100 * time.Millisecond // to observe that nothing happens
)

// echo is a server that answers each line with the same line, and records it.
type echo struct {
	addr  string
	mu    sync.Mutex
	seen  []string
	lines chan string
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	e := &echo{addr: listener.Addr().String(), lines: make(chan string, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		e.mu.Lock()
		e.seen = append(e.seen, in.Text())
		e.mu.Unlock()
		e.lines <- in.Text()
		if _, err := io.WriteString(conn, in.Text()+"\n"); err != nil {
			return
		}
	}
}

func (e *echo) receives(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e.lines:
		if got != want {
			t.Errorf("the server received %q, want %q", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("the server did not receive %q", want)
	}
}

func (e *echo) receivesNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-e.lines:
		t.Errorf("the server received %q, want nothing", got)
	case <-time.After(quiet):
	}
}

type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) sends(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatalf("send %q: %v", line, err)
	}
}

func (c *client) receives(want string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	if got, err := c.in.ReadString('\n'); got != want+"\n" {
		c.t.Fatalf("the client received %q (%v), want %q", got, err, want)
	}
}

func (c *client) receivesNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	got, err := c.in.ReadString('\n')
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		c.t.Errorf("the client received %q (%v), want nothing", got, err)
	}
}

// isReset reports whether the connection ended as it does when the other side
// crashes.
func (c *client) isReset() bool {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, err := c.in.ReadString('\n')
	return errors.Is(err, syscall.ECONNRESET)
}

func contains(word string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(word)) }
}

func await(t *testing.T, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(limit):
		t.Fatalf("%s did not happen", what)
	}
}

func TestPass(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	long := strings.Repeat("x", 60_000)
	for _, line := range []string{"one", "two", long} {
		c.sends(line)
		c.receives(line)
	}
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Errorf("the end of the connection is %v, want EOF", err)
	}
}

func TestHoldAndDeliver(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	c.sends("before")
	c.receives("before")
	server.receives(t, "before")

	p.Hold()
	c.sends("held")
	late := dial(t, p.Addr())
	late.sends("late")
	server.receivesNothing(t)
	if !p.Held(proxy.Requests, limit) {
		t.Error("nothing is held")
	}
	p.Deliver()
	c.receives("held")
	late.receives("late")
	if !p.Settle(limit) {
		t.Error("the connections do not settle")
	}
}

func TestHoldRepliesOnly(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	p.Hold(proxy.Replies)
	c.sends("hello")
	server.receives(t, "hello")
	if !p.Held(proxy.Replies, limit) {
		t.Error("the reply is not held")
	}
	c.receivesNothing()
	p.Deliver()
	c.receives("hello")
}

// Held bytes arrive even if their sender has closed its connection.
func TestHeldBytesOutliveTheirSender(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	p.Hold()
	c.sends("last line")
	c.Close()
	server.receivesNothing(t)
	p.Deliver()
	if !p.Settle(limit) {
		t.Error("the connection does not settle")
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if len(server.seen) != 1 || server.seen[0] != "last line" {
		t.Errorf("after Settle the server has received %q", server.seen)
	}
}

func TestOnRequest(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	happened := p.OnRequest(contains("now"), func(*proxy.Conn) { p.Hold() })
	c.sends("not yet")
	c.receives("not yet")
	server.receives(t, "not yet")
	c.sends("now")
	await(t, happened, "the action")
	server.receivesNothing(t)
	p.Deliver()
	c.receives("now")
	c.sends("now") // runs the action only once
	c.receives("now")
}

func TestBlackhole(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	old := dial(t, p.Addr())
	old.sends("hello")
	old.receives("hello")
	server.receives(t, "hello")
	p.Blackhole()
	old.sends("lost")
	server.receivesNothing(t)
	other := dial(t, p.Addr())
	other.sends("yes")
	other.receives("yes")
}

func TestLoseReply(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	silent, reset, other := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())

	lost := p.LoseReply(contains("silent"), false)
	silent.sends("silent")
	await(t, lost, "the loss")
	server.receives(t, "silent")
	silent.receivesNothing()

	lost = p.LoseReply(contains("reset"), true)
	reset.sends("reset")
	await(t, lost, "the loss")
	server.receives(t, "reset")
	if !reset.isReset() {
		t.Error("the connection was not reset")
	}

	other.sends("others are served")
	other.receives("others are served")
}

func TestReset(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	c.sends("hello")
	c.receives("hello")
	p.Reset()
	if !c.isReset() {
		t.Error("the connection was not reset")
	}
	again := dial(t, p.Addr())
	again.sends("again")
	again.receives("again")
}

func TestHang(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	p.Hang(true)
	c := dial(t, p.Addr())
	c.sends("hello")
	c.receivesNothing()
	p.Hang(false)
	again := dial(t, p.Addr())
	again.sends("again")
	again.receives("again")
	p.Reset()
	if !c.isReset() {
		t.Error("the hanging connection was not reset")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	p.Delay(quiet)
	start := time.Now()
	c.sends("hello")
	c.receives("hello")
	if took := time.Since(start); took < 2*quiet {
		t.Errorf("the round trip took %v, want at least %v", took, 2*quiet)
	}
}

func TestConnectionToDeadServerIsReset(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, "127.0.0.1:1") // a port that no other test uses
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may arrive before or after the handshake
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to a dead server ends with %v, want a reset", err)
	}
}

func TestRedirect(t *testing.T) {
	before, after := startEcho(t), startEcho(t)
	p := proxy.Run(t, before.addr)
	old := dial(t, p.Addr())
	old.sends("a")
	before.receives(t, "a")
	p.Redirect(after.addr)
	old.sends("b")
	before.receives(t, "b")
	dial(t, p.Addr()).sends("c")
	after.receives(t, "c")
	before.receivesNothing(t)
}
