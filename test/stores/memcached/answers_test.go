package memcached

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// relay starts a proxy that passes each line of an answer on by calling pass, and returns its address.
func relay(t *testing.T, server string, pass func(client io.Writer, line string)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(client net.Conn) {
		defer client.Close()
		conn, err := net.Dial("tcp", server)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(conn, client) }() // until one of them closes
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			pass(client, line)
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return listener.Addr().String()
}

// TestAnswerMayArriveInPieces: the value of an item may arrive later than the line before it.
func TestAnswerMayArriveInPieces(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	grant := take(t, openNow(t, addr), "a")
	slow := openNow(t, relay(t, addr, func(client io.Writer, line string) {
		_, _ = io.WriteString(client, line)
		if strings.HasPrefix(line, "VA ") {
			<-time.After(50 * time.Millisecond)
		}
	}))
	info, held, err := slow.(driver.Finder).Find(t.Context(), "a")
	if err != nil || !held || info.Token != grant.Token {
		t.Errorf("Find: %+v, held %v, %v; want token %d", info, held, err, grant.Token)
	}
}

// TestHalfAnAnswerEndsWithTheContext: a call whose answer is incomplete ends with its context, and does
// not keep Close from returning.
func TestHalfAnAnswerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	take(t, openNow(t, addr), "a")
	stats := func(line string) bool { return strings.HasPrefix(line, "STAT") || strings.HasPrefix(line, "END") }
	for name, pass := range map[string]func(client io.Writer, line string){
		"half a line": func(client io.Writer, line string) {
			if !stats(line) {
				line = line[:len(line)/2]
			}
			_, _ = io.WriteString(client, line)
		},
		"half a value": func(client io.Writer, line string) {
			if !stats(line) && !strings.HasPrefix(line, "VA ") {
				line = line[:len(line)/2]
			}
			_, _ = io.WriteString(client, line)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = time.Minute
			store, err := memcachelock.New(relay(t, addr, pass), &memcachelock.Options{RestartDelay: -1, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, _, err := store.Find(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("Find: %v; want context.Canceled", err)
			}
			if took := time.Since(begin); took > timeout/2 {
				t.Errorf("Find returned after %v; want soon after 100 ms", took)
			}
			begin = time.Now()
			if _, err := store.Watch(t.Context(), driver.Request{Name: "a"}, func() {}); err != nil {
				t.Fatal(err)
			}
			<-time.After(200 * time.Millisecond) // so that the poller has asked
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > timeout/2 {
				t.Errorf("Close took %v", took)
			}
		})
	}
}
