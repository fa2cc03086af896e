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
	limit = 20 * time.Second       // for what must happen
	quiet = 100 * time.Millisecond // in which nothing happens
)

// echo is a server that answers each line with the same line, and remembers it.
type echo struct {
	addr string
	mu   sync.Mutex
	seen []string
	news chan string
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	e := &echo{addr: listener.Addr().String(), news: make(chan string, 100)}
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
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		e.mu.Lock()
		e.seen = append(e.seen, lines.Text())
		e.mu.Unlock()
		e.news <- lines.Text()
		if _, err := io.WriteString(conn, lines.Text()+"\n"); err != nil {
			return
		}
	}
}

func (e *echo) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e.news:
		if got != want {
			t.Errorf("the server heard %q, want %q", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("the server did not hear %q", want)
	}
}

func (e *echo) hearsNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-e.news:
		t.Errorf("the server heard %q, want nothing", got)
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

func (c *client) says(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatalf("say %q: %v", line, err)
	}
}

func (c *client) hears(want string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	if got, err := c.in.ReadString('\n'); got != want+"\n" {
		c.t.Fatalf("the client heard %q (%v), want %q", got, err, want)
	}
}

func (c *client) hearsNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	got, err := c.in.ReadString('\n')
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		c.t.Errorf("the client heard %q (%v), want nothing", got, err)
	}
}

// isReset says whether the connection ended the way it does when the other side
// crashes.
func (c *client) isReset() bool {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, err := c.in.ReadString('\n')
	return errors.Is(err, syscall.ECONNRESET)
}

func says(word string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(word)) }
}

func happens(t *testing.T, event <-chan struct{}, what string) {
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
		c.says(line)
		c.hears(line)
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
	c.says("before")
	c.hears("before")
	server.hears(t, "before")

	p.Hold()
	c.says("held")
	late := dial(t, p.Addr())
	late.says("late")
	server.hearsNothing(t)
	if !p.Held(proxy.Requests, limit) {
		t.Error("nothing is held")
	}
	p.Deliver()
	c.hears("held")
	late.hears("late")
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
	c.says("hello")
	server.hears(t, "hello")
	if !p.Held(proxy.Replies, limit) {
		t.Error("the reply is not held")
	}
	c.hearsNothing()
	p.Deliver()
	c.hears("hello")
}

// What was sent arrives although its sender has gone.
func TestHeldOutlivesItsSender(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	p.Hold()
	c.says("last words")
	c.Close()
	server.hearsNothing(t)
	p.Deliver()
	if !p.Settle(limit) {
		t.Error("the connection does not settle")
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if len(server.seen) != 1 || server.seen[0] != "last words" {
		t.Errorf("after it has settled the server had heard %q", server.seen)
	}
}

func TestOnRequest(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	happened := p.OnRequest(says("now"), func(*proxy.Conn) { p.Hold() })
	c.says("not yet")
	c.hears("not yet")
	server.hears(t, "not yet")
	c.says("now")
	happens(t, happened, "the moment")
	server.hearsNothing(t)
	p.Deliver()
	c.hears("now")
	c.says("now") // only once
	c.hears("now")
}

func TestSilence(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	old := dial(t, p.Addr())
	old.says("hello")
	old.hears("hello")
	server.hears(t, "hello")
	p.Silence()
	old.says("anybody there?")
	server.hearsNothing(t)
	other := dial(t, p.Addr())
	other.says("yes")
	other.hears("yes")
}

func TestLoseReply(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	silent, reset, other := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())

	lost := p.LoseReply(says("silent"), false)
	silent.says("silent")
	happens(t, lost, "the loss")
	server.hears(t, "silent")
	silent.hearsNothing()

	lost = p.LoseReply(says("reset"), true)
	reset.says("reset")
	happens(t, lost, "the loss")
	server.hears(t, "reset")
	if !reset.isReset() {
		t.Error("the connection was not reset")
	}

	other.says("others are served")
	other.hears("others are served")
}

func TestReset(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	c.says("hello")
	c.hears("hello")
	p.Reset()
	if !c.isReset() {
		t.Error("the connection was not reset")
	}
	again := dial(t, p.Addr())
	again.says("again")
	again.hears("again")
}

func TestHang(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	p.Hang(true)
	c := dial(t, p.Addr())
	c.says("hello")
	c.hearsNothing()
	p.Hang(false)
	again := dial(t, p.Addr())
	again.says("again")
	again.hears("again")
	p.Reset()
	if !c.isReset() {
		t.Error("the connection that hung was not reset")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p.Addr())
	p.Delay(quiet)
	start := time.Now()
	c.says("hello")
	c.hears("hello")
	if took := time.Since(start); took < 2*quiet {
		t.Errorf("there and back took %v, want at least %v", took, 2*quiet)
	}
}

func TestServerIsDown(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, "127.0.0.1:1") // a port that no other test gets by chance
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may come before the connection is there, or after
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
	old.says("a")
	before.hears(t, "a")
	p.Redirect(after.addr)
	old.says("b")
	before.hears(t, "b")
	dial(t, p.Addr()).says("c")
	after.hears(t, "c")
	before.hearsNothing(t)
}
