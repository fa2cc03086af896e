package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// quiet is how long the tests observe that nothing happens.
const quiet = 100 * time.Millisecond

// echo is a server that answers each line with the same line, and records it.
type echo struct {
	addr  string
	lines chan string
}

func startEcho(t *testing.T) echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	e := echo{listener.Addr().String(), make(chan string, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan() && err == nil; {
					e.lines <- in.Text()
					_, err = io.WriteString(conn, in.Text()+"\n")
				}
			}()
		}
	}()
	return e
}

func (e echo) receives(t *testing.T, want string) {
	t.Helper()
	if got := await.Event(t, e.lines, "the server receives "+want); got != want {
		t.Errorf("the server received %q, want %q", got, want)
	}
}

func (e echo) receivesNothing(t *testing.T) {
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

func dial(t *testing.T, p *proxy.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

// run starts a server, a proxy in front of it, and a client that has exchanged a line.
func run(t *testing.T) (echo, *proxy.Proxy, *client) {
	t.Helper()
	t.Parallel()
	server := startEcho(t)
	p := proxy.Run(t, server.addr)
	c := dial(t, p)
	c.exchanges("first")
	server.receives(t, "first")
	return server, p, c
}

func (c *client) sends(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatalf("send %q: %v", line, err)
	}
}

func (c *client) receives(want string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(await.Limit))
	if got, err := c.in.ReadString('\n'); got != want+"\n" {
		c.t.Fatalf("the client received %q (%v), want %q", got, err, want)
	}
}

func (c *client) exchanges(line string) {
	c.t.Helper()
	c.sends(line)
	c.receives(line)
}

func (c *client) receivesNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	got, err := c.in.ReadString('\n')
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		c.t.Errorf("the client received %q (%v), want nothing", got, err)
	}
}

// isReset checks that the connection ended as it does when the other side crashes.
func (c *client) isReset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(await.Limit))
	if _, err := c.in.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("the connection ended with %v, want a reset", err)
	}
}

func contains(word string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(word)) }
}

func TestPass(t *testing.T) {
	_, _, c := run(t)
	c.exchanges(strings.Repeat("x", 60_000))
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Errorf("the end of the connection is %v, want EOF", err)
	}
}

func TestHoldAndDeliver(t *testing.T) {
	server, p, c := run(t)
	p.Hold()
	c.sends("held")
	late := dial(t, p)
	late.sends("late")
	server.receivesNothing(t)
	if !p.Held(proxy.Requests, await.Limit) {
		t.Error("nothing is held")
	}
	p.Deliver()
	c.receives("held")
	late.receives("late")
	if !p.Settle(await.Limit) {
		t.Error("the connections do not settle")
	}
}

func TestHoldRepliesOnly(t *testing.T) {
	server, p, c := run(t)
	p.Hold(proxy.Replies)
	c.sends("hello")
	server.receives(t, "hello")
	if !p.Held(proxy.Replies, await.Limit) {
		t.Error("the reply is not held")
	}
	c.receivesNothing()
	p.Deliver()
	c.receives("hello")
}

// Held bytes arrive even if their sender has closed its connection. New connections work beside a lag.
func TestHeldBytesOutliveTheirSender(t *testing.T) {
	server, p, c := run(t)
	deliver := p.Lag()
	c.sends("last line")
	c.Close()
	server.receivesNothing(t)
	dial(t, p).exchanges("not held")
	server.receives(t, "not held")
	deliver(await.Limit)
	select {
	case got := <-server.lines:
		if got != "last line" {
			t.Errorf("the server has received %q", got)
		}
	default:
		t.Error("deliver returned before the server had received what was held")
	}
}

func TestOnRequest(t *testing.T) {
	server, p, c := run(t)
	happened := p.OnRequest(contains("now"), func(*proxy.Conn) { p.Hold() })
	c.exchanges("not yet")
	server.receives(t, "not yet")
	c.sends("now")
	await.Event(t, happened, "the action")
	server.receivesNothing(t)
	p.Deliver()
	c.receives("now")
	c.exchanges("now") // runs the action only once
}

func TestBlackhole(t *testing.T) {
	server, p, c := run(t)
	p.Blackhole()
	c.sends("lost")
	server.receivesNothing(t)
	dial(t, p).exchanges("others are served")
}

func TestLoseReply(t *testing.T) {
	server, p, silent := run(t)
	reset := dial(t, p)
	lost := p.LoseReply(contains("silent"), false)
	silent.sends("silent")
	await.Event(t, lost, "the loss")
	server.receives(t, "silent")
	silent.receivesNothing()

	lost = p.LoseReply(contains("reset"), true)
	reset.sends("reset")
	await.Event(t, lost, "the loss")
	server.receives(t, "reset")
	reset.isReset()
	dial(t, p).exchanges("others are served")
}

func TestResetAndHang(t *testing.T) {
	_, p, c := run(t)
	p.Reset()
	c.isReset()
	p.Hang(true)
	c = dial(t, p)
	c.sends("hello")
	c.receivesNothing()
	p.Hang(false)
	dial(t, p).exchanges("again")
	p.Reset()
	c.isReset()
}

func TestDelay(t *testing.T) {
	_, p, c := run(t)
	p.Delay(quiet)
	start := time.Now()
	c.exchanges("hello")
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
		_ = conn.SetReadDeadline(time.Now().Add(await.Limit))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to a dead server ends with %v, want a reset", err)
	}
}

func TestRedirect(t *testing.T) {
	before, p, old := run(t)
	after := startEcho(t)
	p.Redirect(after.addr)
	old.exchanges("stays")
	before.receives(t, "stays")
	dial(t, p).exchanges("moves")
	after.receives(t, "moves")
}
